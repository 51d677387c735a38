"""Makes a report for people out of report.json: a table (CSV) and a page (HTML) that needs nothing but itself.

report.json is written in the user's image, so nothing of it is believed: whatever it holds becomes text on the page,
never markup, and what is not there is left out. Rendering is a pure function: the same bytes give the same files.
"""

from preheat_operator.report.read import MAX_REPORT_BYTES, Report, ReportError
from preheat_operator.report.rendering import CSV_FILE, HTML_FILE, JSON_FILE, render

__all__ = ["CSV_FILE", "HTML_FILE", "JSON_FILE", "MAX_REPORT_BYTES", "Report", "ReportError", "render"]
