"""Verdicts for a job of a build pipeline.

Objectives, findings, checks and compared metrics come in, as cases of one suite; JUnit XML and annotations of GitHub
and GitLab go out. Only :mod:`perftest.ci.publish` writes files.
"""
