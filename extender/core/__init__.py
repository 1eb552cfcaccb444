"""The pure core: values in, values out. No async, no I/O, no clock, no global random."""
