"""Makes a website of the handout that needs no network: mkdocs-material's pages, mathematics as MathML.

in_course    the pages with the points, the name and the dates of the course
mathematics  formulas, as browsers draw them without a script
notebook     a page as a notebook
website      what mkdocs gets: a folder of Markdown, and its configuration
"""
