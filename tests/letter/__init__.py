"""A second queue manager that is written only from the specifications, so that ours meets one that reads them
differently.
"""
