"""What there is: objects, the ledger, names, quantities, reasons, errors, and how they are decoded.
Values only; knows no other room.
"""
