"""Submissions whose verdict is known, planted bugs and correct variants, which test the tests: see __main__.py."""
