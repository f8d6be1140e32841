"""From a sweep's records to tables, figures and one HTML page. Reads records, runs no fit."""
