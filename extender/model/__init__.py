"""Objects, the ledger, names, quantities, reasons, errors, and their decoders.

Holds values only, and imports no other folder.
"""
