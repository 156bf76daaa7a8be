"""Tests of `mcpctl`; a package, so that the tests of the client can use the same fake daemon."""
