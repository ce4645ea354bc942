"""The sections of the page, each as lines of HTML."""
