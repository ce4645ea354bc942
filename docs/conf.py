"""How Sphinx makes a site of these pages: `make docs`. Nothing in it comes from another host."""

project = "mqproto"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "mqproto"
html_copy_source = False
myst_heading_anchors = 3
