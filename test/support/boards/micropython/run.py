"""Runs a program for MicroPython: `time` has the milliseconds of boards."""
import runpy
import sys
import time

time.sleep_ms = lambda milliseconds: time.sleep(milliseconds / 1000)
time.ticks_ms = lambda: int(time.monotonic() * 1000)
time.ticks_add = lambda ticks, more: ticks + more
time.ticks_diff = lambda later, earlier: later - earlier
runpy.run_path(sys.argv[1], run_name="__main__")
