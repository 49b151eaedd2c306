"""Stands for the clock of a board: that of a computer is right already."""


def settime():
    pass
