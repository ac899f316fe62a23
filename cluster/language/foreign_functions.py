"""Functions of other databases, and their equivalents in FjordSQL. For hints only: some are synonyms here."""

from __future__ import annotations

from cluster.language.words import HOPPING, RESET_SHAPE, SESSION_SHAPE, TUMBLING

_NO_TIME = "a standing query has no current date; STAMP() > NOW() - INTERVAL '1' DAY says which tuples count"
_NO_DATES = "there are no dates in FjordSQL: DATE_TRUNC('day', x) is where the day of a timestamp begins"
_NEIGHBOURS = "LAG(x), COUNT(*) and others with OVER (PARTITION BY k ORDER BY STAMP()) are about the tuples before one"
_TEXTS = "texts have ||, CONCAT, UPPER, LOWER, LENGTH, TRIM, SUBSTRING, LEFT, RIGHT, REPLACE, SPLIT_PART, LPAD and RPAD"
_QUANTILES = "write MEDIAN(x) or APPROX_QUANTILE(x, 0.95)"
_LOGARITHM = "write LN(x), LOG10(x) or LOG2(x)"
_CHOICE = "write IF(condition, a, b), or CASE"
_EITHER_NULL = "write x IS NULL, or COALESCE(x, y)"

_INSTEAD: dict[str, tuple[str, ...]] = {
    "trigonometry has SIN, COS, TAN, ASIN, ACOS, ATAN, ATAN2, RADIANS, DEGREES and PI": (
        *("COT", "SINH", "COSH", "TANH", "ASINH", "ACOSH", "ATANH", "SIND", "COSD", "TAND"),
    ),
    "write DISTANCE_METRES(lat1, lon1, lat2, lon2)": (
        *("DISTANCE", "GEO_DISTANCE", "HAVERSINE", "ST_DISTANCE", "EARTH_DISTANCE", "GEODISTANCE"),
        "GREATCIRCLEDISTANCE",
    ),
    _NO_TIME: (
        *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME", "LOCALTIME", "GETDATE"),
        *("LOCALTIMESTAMP", "SYSDATE", "TODAY", "UNIX_TIMESTAMP", "UNIXTIME", "ROWTIME", "PROCTIME"),
    ),
    TUMBLING.format("FROM stream "): ("TUMBLE", "TIME_BUCKET", "DATE_BIN"),
    "it stands in FROM: FROM Istream(stream WINDOW(RANGE 1 HOUR))": ("ISTREAM", "DSTREAM", "RSTREAM"),
    HOPPING.format("FROM stream "): ("HOP",),
    "write WINDOW_START() or WINDOW_END(), without arguments": (
        *("TUMBLE_START", "TUMBLE_END", "HOP_START", "HOP_END", "SESSION_START", "SESSION_END"),
    ),
    f"a window of sessions is written FROM stream {SESSION_SHAPE}": ("SESSION",),
    f"a window that is reset is written FROM stream {RESET_SHAPE}": ("CUMULATE",),
    _NO_DATES: ("DATE", "TO_DATE", "MAKE_DATE"),
    "write x + INTERVAL '1' DAY": (
        *("DATE_ADD", "DATE_SUB", "DATEADD", "TIMESTAMPADD", "TIMESTAMP_ADD", "TIMESTAMP_SUB", "INTERVAL"),
    ),
    "write DATE_DIFF('day', a, b), TIMESTAMPDIFF(DAY, a, b), or b - a": ("DATEDIFF", "TIMESTAMP_DIFF", "AGE"),
    "write DATE_TRUNC('hour', x)": ("TIMESTAMP_TRUNC", "DATETIME_TRUNC"),
    "EXTRACT(ISODOW FROM x) counts from Monday, 1, and EXTRACT(DOW FROM x) from Sunday, 0": ("DAYOFWEEK", "WEEKDAY"),
    "write TIMESTAMP_SECONDS(x), TIMESTAMP_MILLIS(x) or TIMESTAMP_MICROS(x)": (
        *("FROM_UNIXTIME", "TO_TIMESTAMP_LTZ", "MAKE_TIMESTAMP", "EPOCH_MS"),
    ),
    "write EXTRACT(EPOCH FROM x)": ("UNIX_SECONDS", "UNIX_MILLIS", "UNIX_MICROS", "EPOCH"),
    "CAST(x AS TIMESTAMP) reads ISO 8601": ("TIMESTAMP", "STR_TO_DATE", "STRPTIME", "PARSE_TIMESTAMP"),
    "write CAST(x AS type)": (
        *("TO_NUMBER", "TO_INTEGER", "CONVERT", "STR", "FORMAT", "SAFE_CAST", "TRY_CONVERT"),
    ),
    _EITHER_NULL: ("ISNULL",),
    _CHOICE: ("NVL2", "DECODE", "CHOOSE"),
    _LOGARITHM: ("LOG", "LOG1P"),
    "write FLOOR(x), CEIL(x), TRUNC(x) or ROUND(x)": ("INT",),
    "write SQRT(x) or POWER(x, y)": ("CBRT", "SQUARE"),
    "an answer depends on nothing but its streams, so nothing is random": ("RAND", "RANDOM", "UUID", "NEWID"),
    "write SUBSTRING(text, start, length)": ("MID",),
    "write SPLIT_PART(text, separator, number)": ("SPLIT", "SPLIT_INDEX", "SPLIT_TO_ARRAY", "SUBSTRING_INDEX"),
    "write REPLACE(text, text, replacement)": ("TRANSLATE", "REPLACE_ALL", "OVERLAY"),
    "write TRIM(text)": ("LTRIM", "RTRIM", "BTRIM"),
    "write LIKE": (
        *("POSITION", "STRPOS", "INSTR", "CHARINDEX", "LOCATE", "CONTAINS", "STARTS_WITH", "ENDS_WITH", "GLOB"),
    ),
    "write JSON_VALUE(text, '$.key'), with RETURNING INTEGER and the like": (
        *("JSON_EXTRACT_SCALAR", "EXTRACTJSONFIELD", "JSON_PATH_QUERY_FIRST", "JSON_UNQUOTE", "JSON_EXTRACT_PATH_TEXT"),
    ),
    "write JSON_QUERY(text, '$.key')": ("JSON_PATH_QUERY", "JSON_EXTRACT_PATH", "JSON_OBJECT", "JSON_ARRAY"),
    "write JSON_EXISTS(text, '$.key')": (
        *("JSON_PATH_EXISTS", "JSON_CONTAINS", "JSON_VALID", "IS_JSON", "JSON_KEYS", "JSON_TYPE", "JSON_TYPEOF"),
    ),
    "write REGEXP_EXTRACT(text, pattern[, group])": ("REGEXP_SUBSTR",),
    "write REGEXP_LIKE(text, pattern)": ("REGEXP_ILIKE", "REGEXP_FULL_MATCH", "REGEXP_CONTAINS"),
    "write REGEXP_REPLACE(text, pattern, replacement)": ("REGEXP_REPLACE_ALL",),
    _TEXTS: (
        *("REVERSE", "REPEAT", "INITCAP", "CONCAT_WS"),
        *("ASCII", "CHR", "CHAR", "MD5", "SHA1", "SHA2", "SPACE"),
    ),
    _QUANTILES: (
        *("PERCENTILE", "APPROX_PERCENTILE", "PERCENTILE_APPROX"),
        *("APPROX_QUANTILES", "QUANTILE_CONT", "QUANTILE_DISC", "NTILE"),
    ),
    "write STRING_AGG(x, ', ')": ("GROUP_CONCAT", "WM_CONCAT", "STRING_JOIN"),
    "write STDDEV(x)": ("STANDARD_DEVIATION", "STDEV_S", "STD"),
    "write VARIANCE(x)": ("VAR",),
    "write STDDEV_POP(x)": ("STDEVP", "STDEV_P"),
    "write VAR_POP(x)": ("VARP", "VAR_P"),
    "write FIRST(x) or MIN(x)": ("ANY_VALUE", "ARBITRARY"),
    "write FIRST(x) or LAST(x)": (
        *("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"),
    ),
    "write GROUPING(a, b)": ("GROUPING_ID", "GROUPING__ID"),
    "write AVG(x)": ("AVERAGE", "MEAN"),
    "write SUM(x)": ("TOTAL", "ADD"),
    "write MIN(x)": ("MINIMUM",),
    "write MAX(x)": ("MAXIMUM",),
    "write LOWER(text)": ("LOWERCASE", "TO_LOWER"),
    "write UPPER(text)": ("UPPERCASE", "TO_UPPER"),
    "write LENGTH(text)": ("STRLEN", "OCTET_LENGTH"),
    "write COUNT(*) FILTER (WHERE condition)": ("COUNT_IF", "COUNTIF"),
    "write SUM(x) FILTER (WHERE condition)": ("SUM_IF", "SUMIF"),
    "write BOOL_OR(x)": ("SOME",),
    "write COUNT(DISTINCT x)": ("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT", "COUNT_DISTINCT", "APPROX_COUNT"),
    _NEIGHBOURS: ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTH_VALUE"),
}  # fmt: skip

INSTEAD: dict[str, str] = {name: hint for hint, names in _INSTEAD.items() for name in names}
"""By name, in capitals: the equivalent, or the reason why there is none."""

KEEP_ALL = frozenset((
    *("COLLECT_LIST", "COLLECT_SET", "ARRAY_CONCAT_AGG", "ARRAY_AGG"),
    *("JSON_AGG", "JSONB_AGG", "MAP_AGG", "HISTOGRAM"),
))  # fmt: skip
"""Aggregates whose result grows with every value."""
