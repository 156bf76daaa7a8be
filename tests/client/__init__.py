"""Tests of the client of the control API."""
