"""The page as one HTML file: template, style sheet and script, with everything inside."""
