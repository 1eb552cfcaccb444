"""``vreplica config check``: finds what is wrong, or will go wrong, with the files of an
installation.

``codes`` lists every possible finding. Each kind of file has a module that looks for them, with
pure functions of the document and, if it is given too, of the service's configuration. ``files``
reads the files and assigns them to these modules, and ``report`` prints.
"""
