"""Makes a website of the handout that needs no network: mkdocs-material's pages, mathematics as MathML.

mathematics  formulas, as browsers draw them without a script
notebook     a page as a notebook
website      what mkdocs gets: a folder of Markdown, and its configuration
"""
