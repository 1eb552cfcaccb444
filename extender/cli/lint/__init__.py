"""``vreplica config check``: what is wrong, or will go wrong, with the files that an installation
is made of.

``codes`` lists every finding that there is; a module a kind of file looks for them, as pure
functions of the document and, where it is given too, of the service's own configuration; ``files``
reads and sorts the files, ``report`` prints.
"""
