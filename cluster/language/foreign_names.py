"""What other databases call, read or have as a column, and its equivalents in FjordSQL. For hints only."""

from __future__ import annotations

from cluster.language.words import HOPPING, NO_BITS, RESET_SHAPE, SESSION_SHAPE, TUMBLING, WINDOW_SHAPES
from cluster.scalars import SCALAR_FUNCTIONS

NO_ARRAYS = "there are no arrays: SPLIT_PART(x, ',', 1) is a part of a text, and JSON_VALUE(x, '$[0]') of a document"
OF_PLACES = "write x -> 0 for a place in a document, or SPLIT_PART(x, ',', 1) for a part of a text"
_CORRELATED = (
    "a subquery in FROM cannot refer to others: join it, write (SELECT ...) as a value in SELECT, "
    "or choose with QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) <= 3"
)

FOREIGN_STREAMS: dict[str, str] = {
    **dict.fromkeys(("TABLE", "TUMBLE"), TUMBLING.format("FROM stream ")),
    "HOP": HOPPING.format("FROM stream "),
    "SESSION": f"a window of sessions is written FROM stream {SESSION_SHAPE}",
    "CUMULATE": f"a window that is reset is written FROM stream {RESET_SHAPE}",
    "WINDOW": f"a window is written FROM stream {WINDOW_SHAPES}",
    "LATERAL": _CORRELATED,
    "GENERATE_SERIES": "rows come from streams and relations: make a relation of them",
    "VALUES": "rows come from streams and relations: make a relation of them",
    **dict.fromkeys(("UNNEST", "EXPLODE", "JSON_TABLE", "REGEXP_SPLIT_TO_TABLE"), NO_ARRAYS),
}
"""By word in the place of a stream: what to write."""

FOREIGN_COLUMNS: dict[str, str] = {
    **dict.fromkeys(("WINDOW_START", "WINDOWSTART"), "write WINDOW_START(), with parentheses"),
    **dict.fromkeys(("WINDOW_END", "WINDOWEND"), "write WINDOW_END(), with parentheses"),
    "WINDOW_TIME": "write WINDOW_END(), the instant from which a row of the window is valid",
    **dict.fromkeys(("ROWTIME", "EVENT_TIMESTAMP"), "write STAMP(), the instant at which a tuple was sampled"),
    **dict.fromkeys(
        ("LOCALTIMESTAMP", "LOCALTIME", "SYSDATE", "PROCTIME", "SYSTIMESTAMP"),
        "a standing query has no current time; STAMP() > NOW() - INTERVAL '5' MINUTE says which tuples count",
    ),
}
"""By name: columns that other databases add to streams, and words that need no parentheses there."""


def stream_hint(name: str, inner: str) -> str | None:
    """Return what to write instead of a call in FROM; None if nothing is known of it.

    >>> stream_hint("table", "hop") == FOREIGN_STREAMS["HOP"]
    True

    Parameters
    ----------
    name
        What is called.
    inner
        The word behind the opening parenthesis.
    """
    if name.upper() == "TABLE":
        return FOREIGN_STREAMS.get(inner.upper(), FOREIGN_STREAMS["TABLE"])
    return FOREIGN_STREAMS.get(name.upper())


_NO_TIME = "a standing query has no current date; STAMP() > NOW() - INTERVAL '1' DAY says which tuples count"
_NO_DATES = "there are no dates in FjordSQL: DATE_TRUNC('day', x) is where the day of a timestamp begins"
_NEIGHBOURS = "LAG(x), COUNT(*) and others with OVER (PARTITION BY k ORDER BY STAMP()) are about the tuples before one"
_TEXTS = "texts have ||, CONCAT, UPPER, LOWER, LENGTH, TRIM, SUBSTRING, STRPOS, LEFT, RIGHT, REPLACE and SPLIT_PART"
_QUANTILES = "write MEDIAN(x) or APPROX_QUANTILE(x, 0.95)"
_LOGARITHM = "write LN(x), LOG10(x) or LOG2(x)"
_CHOICE = "write IF(condition, a, b), or CASE"
_EITHER_NULL = "write x IS NULL, or COALESCE(x, y)"
_NO_NUMERALS = "texts are compared by code points, and numbers shown in decimal; receivers can show both otherwise"
_NO_BYTES = "texts have no bytes, so there are no hashes or encodings of them; a function of users can compute them"
_NO_SOURCE = "which message brought a tuple is no part of it: STAMP() is when it was sampled"
_CHANGES = "write QUALIFY CHANGED(x) OVER (PARTITION BY k), or CHANGED(x) OVER (PARTITION BY k) in SELECT"
_RUNNING = "write SUM(x) OVER (PARTITION BY k ORDER BY STAMP()); COUNT, AVG, MIN and MAX likewise"
_FIRST_ROWS = "write QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) <= 3"
_PRESENT = "write STAMP() > NOW() - INTERVAL '5' MINUTE, in WHERE"

SHARES = ("NTILE", "PERCENT_RANK", "CUME_DIST")
"""Ranks that depend on the number of all rows."""
_INSTEAD: dict[str, tuple[str, ...]] = {
    "trigonometry has SIN, COS, TAN, COT, ASIN, ACOS, ATAN, ATAN2, SINH, COSH, TANH, RADIANS, DEGREES and PI": (
        *("ASINH", "ACOSH", "ATANH", "SIND", "COSD", "TAND"),
    ),
    "write DISTANCE_METRES(lat1, lon1, lat2, lon2)": (
        *("DISTANCE", "GEO_DISTANCE", "HAVERSINE", "ST_DISTANCE", "EARTH_DISTANCE", "GEODISTANCE"),
        "GREATCIRCLEDISTANCE",
    ),
    _NO_TIME: (
        *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME", "LOCALTIME", "GETDATE"),
        *("LOCALTIMESTAMP", "SYSDATE", "TODAY", "UNIXTIME", "ROWTIME", "PROCTIME", "TSTAMP", "LOCAL_TIMESTAMP"),
        *("CUR_DATE", "CUR_TIME", "LOCAL_TIME"),
    ),
    TUMBLING.format("FROM stream "): ("TUMBLE", "TIME_BUCKET", "DATE_BIN", "TUMBLINGWINDOW"),
    "it stands in FROM: FROM Istream(stream WINDOW(RANGE 1 HOUR))": ("ISTREAM", "DSTREAM", "RSTREAM"),
    HOPPING.format("FROM stream "): ("HOP", "HOPPINGWINDOW"),
    "write WINDOW_START() or WINDOW_END(), without arguments": (
        *("TUMBLE_START", "TUMBLE_END", "HOP_START", "HOP_END", "TUMBLE_ROWTIME", "HOP_ROWTIME", "TUMBLE_PROCTIME"),
        *("HOP_PROCTIME", "SESSION_START", "SESSION_END", "SESSION_ROWTIME", "SESSION_PROCTIME"),
    ),
    f"a window is written FROM stream {WINDOW_SHAPES}; conditions on its tuples stand in WHERE": (
        "SLIDINGWINDOW",
    ),
    f"a window of sessions is written FROM stream {SESSION_SHAPE}": ("SESSION", "SESSIONWINDOW"),
    "a window of rows is written FROM stream WINDOW(ROWS 10 SLIDE 10)": ("COUNTWINDOW",),
    "types are known when a query is added: fjord query explain shows them": ("TYPEOF",),
    "write CASE WHEN x = 1 THEN 'a' WHEN x IN (2, 3) THEN 'b' END": ("CASE",),
    "no condition opens a window: PATTERN (A B* C) of MATCH_RECOGNIZE finds what begins and ends so": ("STATEWINDOW",),
    _CHANGES: ("HAD_CHANGED", "CHANGED_COL", "CHANGED_COLS"),
    "write LAST_VALUE(x IGNORE NULLS) OVER (PARTITION BY k ORDER BY STAMP())": ("LATEST",),
    _RUNNING: ("ACC_SUM", "ACC_AVG", "ACC_COUNT", "ACC_MIN", "ACC_MAX"),
    _FIRST_ROWS: ("TOPK", "TOPKDISTINCT"),
    _PRESENT: ("MZ_NOW", "MZ_LOGICAL_TIMESTAMP"),
    "write STAMP(), the instant at which a tuple was sampled": ("EVENT_TIME", "CURRENT_ROW_TIMESTAMP"),
    "a watermark is no value: an answer does not depend on how far the stream has come": ("CURRENT_WATERMARK",),
    _NO_SOURCE: ("META", "MQTT", "RULE_ID", "RULE_START"),
    NO_ARRAYS: (
        *("UNNEST", "EXPLODE", "CARDINALITY", "ARRAY_LENGTH", "ARRAY_CONTAINS", "ELEMENT_AT", "STR_TO_MAP"),
        *("TRANSFORM", "AS_MAP", "MAP", "STRUCT", "REGEXP_EXTRACT_ALL", "REGEXP_MATCHES_ALL", "OBJECT_CONSTRUCT"),
    ),
    NO_BITS: ("BITAND", "BITOR", "BITXOR", "BITNOT", "BIT_AND", "BIT_OR", "BIT_XOR"),
    _NO_NUMERALS: ("ASCII", "CHR", "CHAR", "BIN", "HEX", "UNHEX", "CONV", "DEC2HEX", "HEX2DEC", "TO_HEX"),
    _NO_BYTES: (
        *("MD5", "SHA1", "SHA2", "SHA224", "SHA256", "SHA384", "SHA512", "CRC32", "TO_BASE64", "FROM_BASE64"),
        *("ENCODE", "URL_ENCODE", "URL_DECODE", "COMPRESS", "DECOMPRESS"),
    ),
    f"a window that is reset is written FROM stream {RESET_SHAPE}": ("CUMULATE",),
    _NO_DATES: ("DATE", "TO_DATE", "MAKE_DATE"),
    "write x + INTERVAL '1' DAY": (
        *("DATE_ADD", "DATE_SUB", "DATEADD", "TIMESTAMP_ADD", "TIMESTAMP_SUB", "INTERVAL", "DATE_CALC"),
    ),
    "write DATE_DIFF('day', a, b), TIMESTAMPDIFF(DAY, a, b), or b - a": ("DATEDIFF", "TIMESTAMP_DIFF", "AGE"),
    "write DATE_TRUNC('hour', x)": ("TIMESTAMP_TRUNC", "DATETIME_TRUNC"),
    "write DAYOFMONTH(x), DAYOFYEAR(x) or EXTRACT(ISODOW FROM x)": ("DAY_OF_MONTH", "DAY_OF_YEAR", "DAY_OF_WEEK"),
    "write STRFTIME(x, '%A') for the name of the day, '%B' for that of the month": (
        *("DAY_NAME", "MONTH_NAME", "DAYNAME", "MONTHNAME"),
    ),
    "write DATE_FORMAT(x, 'yyyy-MM-dd HH:mm:ss')": (
        *("FORMAT_TIME", "FORMAT_TIMESTAMP", "TIMESTAMPTOSTRING", "FORMAT_DATE", "DATETOSTRING"),
    ),
    "write x AT TIME ZONE 'Europe/Berlin'; CAST(x AS TIMESTAMP) makes a timestamp of a text": ("CONVERT_TZ",),
    "EXTRACT(ISODOW FROM x) counts from Monday, 1, and EXTRACT(DOW FROM x) from Sunday, 0": ("DAYOFWEEK", "WEEKDAY"),
    "write TIMESTAMP_SECONDS(x), TIMESTAMP_MILLIS(x) or TIMESTAMP_MICROS(x)": (
        *("FROM_UNIXTIME", "TO_TIMESTAMP_LTZ", "MAKE_TIMESTAMP", "EPOCH_MS"),
    ),
    "write EXTRACT(EPOCH FROM x); CAST(x AS TIMESTAMP) makes a timestamp of a text, and NOW() is only compared": (
        *("UNIX_SECONDS", "UNIX_MILLIS", "UNIX_MICROS", "EPOCH", "TO_SECONDS", "UNIX_TIMESTAMP"),
    ),
    "CAST(x AS TIMESTAMP) reads ISO 8601, and TO_TIMESTAMP(x, 'dd.MM.yyyy HH:mm') other texts": (
        *("TIMESTAMP", "STR_TO_DATE", "STRPTIME", "PARSE_TIMESTAMP", "STRINGTOTIMESTAMP", "PARSE_DATE"),
    ),
    "write CAST(x AS type)": (
        *("TO_NUMBER", "TO_INTEGER", "CONVERT", "STR", "FORMAT", "SAFE_CAST", "TRY_CONVERT"),
    ),
    _EITHER_NULL: ("ISNULL",),
    _CHOICE: ("NVL2", "DECODE", "CHOOSE", "ELT"),
    _LOGARITHM: ("LOG", "LOG1P"),
    "write EXP(1)": ("E",),
    "write FLOOR(x), CEIL(x), TRUNC(x) or ROUND(x)": ("INT",),
    "write SQRT(x) or POWER(x, y)": ("CBRT", "SQUARE"),
    "an answer depends on nothing but its streams, so nothing is random": (
        *("RAND", "RANDOM", "UUID", "NEWID", "NEWUUID", "RAND_INTEGER"),
    ),
    "write SUBSTRING(text, start, length)": ("MID",),
    "write SPLIT_PART(text, separator, number)": (
        *("SPLIT", "SPLIT_INDEX", "SPLIT_TO_ARRAY", "SUBSTRING_INDEX", "SPLIT_VALUE"),
    ),
    "write REPLACE(text, text, replacement)": ("TRANSLATE", "REPLACE_ALL"),
    "write LEFT(x, 1) || y || SUBSTRING(x, 3)": ("OVERLAY",),
    "write RPAD('', n * LENGTH(x), x)": ("REPEAT",),
    "write UPPER(LEFT(x, 1)) || LOWER(SUBSTRING(x, 2))": ("INITCAP",),
    "write x || '-' || y; CONCAT(x, '-', y) leaves NULLs out": ("CONCAT_WS",),
    "write STRPOS(text, part)": ("CHARINDEX", "INDEXOF"),
    "write LENGTH(REGEXP_REPLACE(x, 'pattern', '\\0.')) - LENGTH(x)": ("REGEXP_COUNT",),
    "write LENGTH(REGEXP_EXTRACT(x, '^(.*?)pattern', 1)) + 1": ("REGEXP_INSTR",),
    "write LIKE": (
        *("CONTAINS", "GLOB"),
    ),
    "write JSON_VALUE(text, '$.key'), with RETURNING INTEGER and the like": (
        *("JSON_EXTRACT_SCALAR", "EXTRACTJSONFIELD", "JSON_UNQUOTE", "JSON_EXTRACT_PATH_TEXT"),
    ),
    "write JSON_EXTRACT(text, '$.key'), or JSON_QUERY(text, '$.key') for objects and arrays alone": (
        *("JSON_PATH_QUERY", "JSON_PATH_QUERY_FIRST", "JSON_EXTRACT_PATH"),
    ),
    "documents are read here, and not made: CONCAT(x, ', ', y) joins values of any type": (
        *("JSON_OBJECT", "JSON_ARRAY", "JSON_STRING", "TO_JSON", "TO_JSON_STRING", "JSON_BUILD_OBJECT", "PRINTF"),
        *("FORMAT_STRING",),
    ),
    "write JSON_EXISTS(text, '$.key')": (
        *("JSON_PATH_EXISTS", "JSON_CONTAINS", "JSON_VALID", "IS_JSON", "JSON_KEYS", "JSON_TYPE", "JSON_TYPEOF"),
    ),
    "write REGEXP_EXTRACT(text, pattern[, group])": ("REGEXP_MATCH", "PARSE_URL"),
    "write REGEXP_REPLACE(text, '[A-Z]', 'X')": ("MASK",),
    "write REGEXP_LIKE(text, pattern)": (
        "REGEXP",
        *("REGEXP_ILIKE", "REGEXP_FULL_MATCH", "REGEXP_CONTAINS", "IS_ALPHA", "IS_DIGIT", "IS_DECIMAL"),
    ),
    "write REGEXP_REPLACE(text, pattern, replacement)": ("REGEXP_REPLACE_ALL",),
    _TEXTS: (
        *("SOUNDEX", "SPACE"),
    ),
    _QUANTILES: (
        *("APPROX_PERCENTILE", "PERCENTILE_APPROX", "APPROX_QUANTILES"),
    ),
    "write PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)": ("PERCENTILE", "QUANTILE_CONT"),
    "write PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY x)": ("QUANTILE_DISC",),
    "places are ROW_NUMBER(), RANK() and DENSE_RANK(); shares of rows are quantiles, such as MEDIAN(x)": (
        *(*SHARES, "NTH_VALUE"),
    ),
    "write STRING_AGG(x, ', ')": ("GROUP_CONCAT", "WM_CONCAT", "STRING_JOIN"),
    "write STDDEV(x)": ("STANDARD_DEVIATION", "STDEV_S", "STD", "STDDEVS"),
    "write VARIANCE(x), or VAR_POP(x), which divides by n": ("VAR", "VARS"),
    "write STDDEV_POP(x)": ("STDEVP", "STDEV_P"),
    "write VAR_POP(x)": ("VARP", "VAR_P"),
    "write FIRST(x) or MIN(x)": ("ANY_VALUE", "ARBITRARY"),
    "write LAST(x), by stamps": ("LATEST_BY_OFFSET",),
    "write FIRST(x), by stamps": ("EARLIEST_BY_OFFSET",),
    "write CASE WHEN MIN(x) = MAX(x) THEN MIN(x) END": ("ATTR",),
    "write (AVG(x * y) - AVG(x) * AVG(y)) / (STDDEV_POP(x) * STDDEV_POP(y))": (
        *("CORRELATION", "CORR", "COVAR_POP", "COVAR_SAMP"),
    ),
    "write COUNT(*), SUM(x), AVG(x), MIN(x) or MAX(x)": (
        *("INC_COUNT", "INC_SUM", "INC_AVG", "INC_MIN", "INC_MAX", "INC_LAST_VALUE"),
    ),
    "write SELECT DISTINCT, or COUNT(DISTINCT x)": ("DEDUPLICATE",),
    "write GROUPING(a, b)": ("GROUPING__ID",),
    "leave out sets of GROUP BY that are there twice": ("GROUP_ID",),
    "write AVG(x)": ("AVERAGE", "MEAN"),
    "write SUM(x)": ("TOTAL", "ADD"),
    "write MIN(x)": ("MINIMUM",),
    "write MAX(x)": ("MAXIMUM",),
    "write LOWER(text)": ("LOWERCASE", "TO_LOWER"),
    "write UPPER(text)": ("UPPERCASE", "TO_UPPER"),
    "write LENGTH(text), in code points": ("STRLEN", "OCTET_LENGTH", "NUMBYTES", "BIT_LENGTH"),
    "write COUNT(*) FILTER (WHERE condition)": ("COUNT_IF", "COUNTIF"),
    "write SUM(x) FILTER (WHERE condition)": ("SUM_IF", "SUMIF"),
    "write BOOL_OR(x)": ("SOME",),
    "write COUNT(DISTINCT x)": ("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT", "COUNT_DISTINCT", "APPROX_COUNT"),
    _NEIGHBOURS: ("ROW_NUMBER", "RANK", "DENSE_RANK"),
}  # fmt: skip

INSTEAD: dict[str, str] = {
    name: hint for hint, names in _INSTEAD.items() for name in names if name not in SCALAR_FUNCTIONS
}
"""By name, in capitals: the equivalent, or the reason why there is none."""

KEEP_ALL = frozenset((
    *("COLLECT_LIST", "COLLECT_SET", "ARRAY_CONCAT_AGG", "ARRAY_AGG"),
    *("JSON_AGG", "JSONB_AGG", "MAP_AGG", "HISTOGRAM", "COLLECT", "LIST_AGG", "MERGE_AGG"),
    *("JSON_ARRAYAGG", "JSON_OBJECTAGG", "JSONB_OBJECT_AGG"),
))  # fmt: skip
"""Aggregates whose result grows with every value."""
