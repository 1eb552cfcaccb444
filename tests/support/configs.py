"""Configurations of tests, from a file or a plain value."""

from extender.config.document import Document, open_document
from extender.config.model import Config
from extender.config.reading import config_of
from extender.model.names import CONFIG_KIND


def load_config(path: str) -> Config:
    return config_of(open_document(path))


def config_from(document: object, subject: str = CONFIG_KIND) -> Config:
    return config_of(Document(subject, document))
