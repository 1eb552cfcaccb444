"""Every command in the pages is run by a test, or says why not."""
