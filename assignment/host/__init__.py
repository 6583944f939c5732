"""For processes that import a submission: its functions, and what its exceptions say."""
