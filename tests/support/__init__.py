"""Builders and fakes shared by the tests."""
