"""What goes wrong in the lab, in a sentence for the person who runs it."""


class LabError(Exception):
    """The lab itself failed (not the program that ran in it)."""
