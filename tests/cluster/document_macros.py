"""Functions of JSON documents in DuckDB's words."""

from __future__ import annotations

DOCUMENT_MACROS = (
    # DuckDB reads words that JSON has not.
    (
        "CREATE MACRO f_document(s) AS CASE WHEN json_valid(s) "
        "AND NOT regexp_full_match(s, '(?i)[ \\t\\r\\n]*-?(nan|inf|infinity)[ \\t\\r\\n]*') THEN s END"
    ),
    "CREATE MACRO f_json_kind(s, p) AS json_type(f_document(s), p)",
    # It also writes numbers in its own way, 1e2 as 100.0: one that is the whole document is taken as it is written.
    (
        "CREATE MACRO f_json_number(s, p) AS CASE WHEN f_json_kind(s, p) IN ('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE') "
        "AND f_json_kind(s, '$') NOT IN ('OBJECT', 'ARRAY') THEN trim(s, chr(9) || chr(10) || chr(13) || ' ') END"
    ),
    (
        "CREATE MACRO f_json_text(s, p) AS CASE WHEN f_json_kind(s, p) <> 'NULL' THEN "
        "list_filter([coalesce(f_json_number(s, p), json_extract_string(f_document(s), p))], "
        "lambda made: length(made) <= 10000)[1] END"
    ),
    (
        "CREATE MACRO f_json_scalar(s, p) AS CASE WHEN f_json_kind(s, p) NOT IN ('OBJECT', 'ARRAY') "
        "THEN f_json_text(s, p) END"
    ),
    (
        "CREATE MACRO f_json_container(s, p) AS CASE WHEN f_json_kind(s, p) IN ('OBJECT', 'ARRAY') "
        "THEN f_json_text(s, p) END"
    ),
    (
        "CREATE MACRO f_json_part(s, p) AS "
        "list_filter([coalesce(f_json_number(s, p), CAST(json_extract(f_document(s), p) AS VARCHAR))], "
        "lambda made: length(made) <= 10000)[1]"
    ),
    "CREATE MACRO f_json_exists(s, p) AS json_exists(f_document(s), p)",
)
