"""Errors of the parser: what it would read too loosely, where it could not go on, and what was meant.

**Errors where the parser could not go on: the word that is to blame, and the one that may have been meant.**

The parser stops where the text makes no sense any more; the mistake is often a word before, which it took for an alias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.errors import FjordSqlError
from cluster.language.sensor_clauses import SensorClauseParsing
from cluster.language.words import (
    AFTER_OPERANDS,
    ALIAS_EXPECTED,
    BEFORE_OPERANDS,
    CALLED_CLAUSES,
    EXPECTED_SHAPES,
    FOLLOWED,
    FOREIGN_CLAUSES,
    FOREIGN_OPERATORS,
    FOREIGN_QUOTES,
    LANGUAGE,
    OF_WINDOWS,
    QUOTES,
    UNQUOTED,
    WINDOW_SHAPES,
    WITH_SHAPE,
)
from protocols.text.closeness import closest, did_you_mean

MOST_CHARACTERS = 40
"""Most characters of a number that is converted for a hint."""

_WHOLE = re.compile(r"[\w.]*\w")
_OF_OTHER_BASES = re.compile(r"0(?:x[0-9a-f]+|o[0-7]+|b[01]+)", re.IGNORECASE | re.ASCII)
_WITH_UNDERSCORES = re.compile(r"\d[\d_]*(?:\.\d[\d_]*)?", re.ASCII)


def glued(number: Token, word: Token) -> bool:
    """Return whether a number and the word behind it are adjacent."""
    return number.end + 1 == word.start


def glued_number(text: str, number: Token, word: Token, *, named: bool) -> FjordSqlError:
    """Return the error about a number with a word directly behind it.

    Parameters
    ----------
    text
        The statement.
    number, word
        The tokens that were read of it.
    named
        True where the word would be the name of a column.
    """
    whole = _WHOLE.match(text, number.start)
    end = whole.end() if whole else word.end + 1
    written, digits = text[number.start : end], text[number.start : number.end + 1]
    if len(written) <= MOST_CHARACTERS and _OF_OTHER_BASES.fullmatch(written):
        hint = f"numbers are decimal: write {int(written, 0)}"
    elif _WITH_UNDERSCORES.fullmatch(written):
        hint = f"write {written.replace('_', '')}"
    elif named:
        hint = f"write {digits}, or {digits} AS {word.text} to call it so"
    else:
        hint = f"numbers have no unit here: write {digits}"
    return FjordSqlError(f"{written!r} is no number", text=text, start=number.start, end=end, hint=hint)


SUBSTRING_SHAPE = "SUBSTRING(text FROM start FOR length), or SUBSTRING(text, start, length)"
MATCHING = "columns match by their place, and are named by the first query"
BEFORE_OPERATION = ("LEFT", "RIGHT", "FULL", "INNER", "OUTER", "SEMI", "ANTI", "CROSS", "NATURAL")
BEHIND_OPERATION = ("STRICT", "CORRESPONDING", "BY", "NAME")


class RefusedSpellings(SensorClauseParsing):
    """The part of the parser that refuses spellings that sqlglot would read with another meaning."""

    def _parse_substring(self) -> exp.Substring:
        arguments: list[exp.Expr | None] = [*self._parse_csv(self._parse_bitwise)]
        word = self._curr
        if self._match(TokenType.FOR) or (len(arguments) != 1 and self._match(TokenType.FROM)):
            behind = word.token_type == TokenType.FROM
            reason = "FROM was not expected behind a comma" if behind else "FROM was expected before FOR"
            self.refuse(reason, token=word, hint=f"it is written {SUBSTRING_SHAPE}")
        for separator in (TokenType.FROM, TokenType.FOR):
            if self._match(separator):
                arguments += [self._parse_bitwise()]
        return self.validate_expression(exp.Substring.from_arg_list(arguments), arguments)

    def parse_set_operation(
        self,
        this: exp.Expr | None,
        consume_pipe: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
        intersect_only: bool = False,  # noqa: FBT001, FBT002
    ) -> exp.SetOperation | None:
        """Return the set operation that comes next; refuse spellings that match columns by their names."""
        first = self._index
        operation = super().parse_set_operation(this, consume_pipe, intersect_only)
        if operation is not None and any(operation.args.get(part) for part in ("by_name", "side", "kind")):
            self._refuse_matching(first)
        return operation

    def _refuse_matching(self, first: int) -> NoReturn:
        tokens = self._tokens[first:]
        before = next((token for token in tokens[:3] if token.text.upper() in BEFORE_OPERATION), None)
        place = next(place for place, token in enumerate(tokens) if token.token_type in self.SET_OPERATIONS)
        if before is not None and before in tokens[:place]:
            reason = f"{before.text.upper()} is not part of FjordSQL before UNION, EXCEPT or INTERSECT"
            self.refuse(reason, token=before)
        words = [token for token in tokens[place : place + 5] if token.text.upper() in BEHIND_OPERATION]
        written = " ".join(token.text.upper() for token in words)
        self.refuse_span(f"{written} is not part of FjordSQL", words[0].start, words[-1].end + 1, hint=MATCHING)


NAMES = frozenset({*Parser.ID_VAR_TOKENS, TokenType.VAR} - {TokenType.IDENTIFIER})
"""Kinds of words that may be names without quotes: a misspelled word of the language is one of them."""
_CLAUSES = frozenset({"SELECT", "FROM", "ON", "WHERE", "GROUP BY", "HAVING", "WITH"})
_SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT"})
_CONDITIONS = frozenset({"WHERE", "HAVING", "ON"})
_WANTING = frozenset({
    *("WHERE", "HAVING", "ON", "GROUP BY", "AND", "OR", "NOT", "LIKE", "IN", "BETWEEN", "WHEN", "THEN", "ELSE"),
    *("=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||"),
})  # fmt: skip
"""Words and marks behind which an operand has to stand."""
_NO_OPERANDS = frozenset({
    *("AND", "OR", "LIKE", "IN", "BETWEEN", "WHEN", "THEN", "ELSE", "END", "IS", "FROM", "WHERE", "GROUP BY", "HAVING"),
    *("ON", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "/", "%", "||", ")", ",", "UNION", "EXCEPT", "INTERSECT"),
})  # fmt: skip
"""Words and marks that begin no operand."""
_BEGIN_OPERANDS = (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, *NAMES)
_EXPECTED = re.compile(r"Expect(?:ed|ing) (AS|END|AND|\()")


@dataclass(frozen=True, slots=True)
class Stop:
    """The point at which the parser stopped.

    Parameters
    ----------
    text
        The text with the statement.
    tokens
        The tokens of the statement.
    index
        The first token that it could not read; their number at the end of the text.
    """

    text: str
    tokens: Sequence[Token]
    index: int

    def word(self, index: int) -> str:
        """Return a token's text in capitals; empty beyond the ends, and for texts and names in quotes."""
        token = self.token(index)
        quoted = token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return "" if token is None or quoted else token.text.upper()

    def token(self, index: int) -> Token | None:
        """Return a token, or None if there is none."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    def error(self, index: int, reason: str, hint: str | None = None) -> FjordSqlError:
        """Return an error about a token, or about the end."""
        token = self.token(index)
        start, end = (token.start, token.end + 1) if token else (len(self.text.rstrip()),) * 2
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)

    def unexpected(self, index: int, hint: str | None = None, *, why: str = "") -> FjordSqlError:
        """Return the error that a token, or the end, was not expected."""
        token = self.token(index)
        what = "the statement ends too early"
        if token is not None:
            what = f"{self.text[token.start : token.end + 1]!r} was not expected here"
        return self.error(index, what + why, hint)


def explained(stop: Stop, message: str = "") -> FjordSqlError:
    """Return the error about the point at which the parser stopped.

    Parameters
    ----------
    stop
        That point.
    message
        sqlglot's message about it, which may name a missing word.
    """
    found = (
        _foreign_quote(stop)
        or _glued_number(stop)
        or misspelled(stop)
        or _within(stop)
        or _clause_of_stream(stop)
        or _quoted_alias(stop)
        or _left_alone(stop)
        or _foreign(stop)
        or _missing(stop)
        or _word_missing(stop, message)
        or _parentheses(stop)
    )
    return found or stop.unexpected(stop.index, _side_by_side(stop))


def _foreign_quote(stop: Stop) -> FjordSqlError | None:
    for index, token in enumerate(stop.tokens[: stop.index + 1]):
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if not quoted and (found := FOREIGN_QUOTES & set(token.text)):
            error = stop.unexpected(index, QUOTES)
            (quote,) = sorted(found)[:1]
            return FjordSqlError(
                f"{quote!r} was not expected here", text=stop.text, start=error.start, end=error.end, hint=QUOTES
            )
    return None


def _glued_number(stop: Stop) -> FjordSqlError | None:
    number, word = stop.token(stop.index - 1), stop.token(stop.index)
    if number is None or word is None or number.token_type != TokenType.NUMBER or word.token_type not in NAMES:
        return None
    whole = glued(number, word) and word.text.upper() not in LANGUAGE
    return glued_number(stop.text, number, word, named=False) if whole else None


def misspelled(stop: Stop) -> FjordSqlError | None:
    """Return the error that the word where the parser stopped, or the one before, is misspelled; or None."""
    for index in (stop.index, stop.index - 1):
        if (hint := did_you_mean(stop.word(index), _fitting(stop, index))) and _may_be_misspelled(stop, index):
            return stop.unexpected(index, hint)
    return None


def _may_be_misspelled(stop: Stop, index: int) -> bool:
    token = stop.token(index)
    dotted = stop.word(index - 1) == "." or stop.word(index + 1) == "."
    return token is not None and token.token_type in NAMES and token.text.upper() not in LANGUAGE and not dotted


def _fitting(stop: Stop, index: int) -> tuple[str, ...]:
    """Return the words of the language that fit at a token's place."""
    before = stop.word(index - 1)
    if before in FOLLOWED and closest(stop.word(index), FOLLOWED[before][0]):
        return FOLLOWED[before][0]
    return AFTER_OPERANDS.get(_clause(stop, index), ()) if _ends_operand(stop, index - 1) else BEFORE_OPERANDS


def _clause(stop: Stop, index: int) -> str:
    """Return the clause in which a token stands; a parenthesis if that is the list or call around it."""
    first = f"{stop.word(0)} {stop.word(1)}"
    if first in AFTER_OPERANDS and "SELECT" not in {stop.word(each) for each in range(index)}:
        return first
    depth = 0
    for place in range(index - 1, -1, -1):
        word = stop.word(place)
        depth += (word == ")") - (word == "(")
        if depth == 0 and word in _CLAUSES:
            return word
        if depth < 0:
            caller = stop.token(place - 1)
            if caller is not None and (stop.word(place - 1) == "IN" or caller.token_type in NAMES):
                return "("
            depth = 0
    return ""


def _ends_operand(stop: Stop, index: int) -> bool:
    token = stop.token(index)
    if token is None:
        return False
    ends = token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER)
    return ends or stop.word(index) in (")", "END", "NULL", "TRUE", "FALSE") or _is_name(stop, index)


def _is_name(stop: Stop, index: int) -> bool:
    token = stop.token(index)
    if token is None or token.token_type not in NAMES:
        return False
    return token.text.upper() not in (*_WANTING, *_SET_OPERATIONS, "ALL", "ANY", "CASE", "DISTINCT", "IS", "SELECT")


def _within(stop: Stop) -> FjordSqlError | None:
    """Return the error about a WITHIN that is not a name, but has no column before it or no number behind."""
    for index in (stop.index, stop.index - 1):
        before, behind = stop.token(index - 1), stop.token(index + 1)
        if stop.word(index) != "WITHIN" or before is None or behind is None or _clause(stop, index) == "FROM":
            continue
        shape = "it is written speed WITHIN 0.5"
        if stop.word(index - 1) == ")" and behind.token_type == TokenType.NUMBER:
            return stop.error(index, "an error can be allowed on a column only", shape)
        if before.token_type in (TokenType.IDENTIFIER, *NAMES) and behind.token_type in _BEGIN_OPERANDS:
            return stop.error(index + 1, "a number was expected behind WITHIN", shape)
    return None


def _clause_of_stream(stop: Stop) -> FjordSqlError | None:
    """Return the error about a clause of FROM in another place."""
    for index in (stop.index, stop.index - 1):
        word = stop.word(index)
        if word in CALLED_CLAUSES and stop.word(index + 1) == "(" and _clause(stop, index) not in ("FROM", "SELECT"):
            shape = f"FROM stream {CALLED_CLAUSES[word]}"
            return stop.error(index, f"{word} belongs to a stream in FROM, directly after its name or alias", shape)
    return None


def _quoted_alias(stop: Stop) -> FjordSqlError | None:
    token = stop.token(stop.index)
    if token is None or token.token_type != TokenType.STRING or stop.word(stop.index - 1) != "AS":
        return None
    return stop.error(stop.index, ALIAS_EXPECTED, UNQUOTED)


def _left_alone(stop: Stop) -> FjordSqlError | None:
    for index in (stop.index, stop.index + 1):
        before = stop.word(index - 1)
        if before == "AT" and not {"EVERY", "RATE"} & {stop.word(each) for each in range(index - 5, index)}:
            continue
        if before in FOLLOWED and stop.word(index - 2) != "." and stop.word(index) not in FOLLOWED[before][0]:
            words, what, shape = FOLLOWED[before]
            if (hint := did_you_mean(stop.word(index), words)) is not None:
                return stop.unexpected(index, hint)
            return stop.error(index, f"{before} is followed by {what}", f"it is written {shape}")
    return None


def _foreign(stop: Stop) -> FjordSqlError | None:
    for index in (stop.index, stop.index - 1):
        word = stop.word(index)
        if word in OF_WINDOWS:
            return stop.unexpected(index, f"a window is written {WINDOW_SHAPES}")
        if word in FOREIGN_CLAUSES:
            return stop.error(index, f"{word} is not part of FjordSQL", FOREIGN_CLAUSES[word])
        if (error := _foreign_pair(stop, index - 1) or _foreign_pair(stop, index)) is not None:
            return error
    word = stop.word(stop.index)
    return stop.unexpected(stop.index, FOREIGN_OPERATORS[word]) if word in FOREIGN_OPERATORS else None


def _foreign_pair(stop: Stop, first: int) -> FjordSqlError | None:
    """Return the error that a token and the next one are an operator of other databases."""
    token, last = stop.token(first), stop.token(first + 1)
    pair = stop.word(first) + stop.word(first + 1)
    if token is None or last is None or pair not in FOREIGN_OPERATORS or token.end + 1 != last.start:
        return None
    reason, hint = f"{pair!r} was not expected here", FOREIGN_OPERATORS[pair]
    return FjordSqlError(reason, text=stop.text, start=token.start, end=last.end + 1, hint=hint)


def _missing(stop: Stop) -> FjordSqlError | None:
    """Return the error about the first place where an operand is missing."""
    for index in range(1, stop.index + 1):
        before, word = stop.word(index - 1), stop.word(index)
        all_columns = before == "*" and not _ends_operand(stop, index - 2)
        ended = stop.token(index) is None
        last = stop.tokens[index - 1]
        if (before in _WANTING and not all_columns and (ended or word in _NO_OPERANDS)) or (
            ended and before in {*_SET_OPERATIONS, "ALL", "DISTINCT", ","}
        ):
            written = stop.text[last.start : last.end + 1]
            return _foreign_pair(stop, index - 1) or stop.unexpected(
                index, why=f": something is missing after {written!r}"
            )
    return None


def _word_missing(stop: Stop, message: str) -> FjordSqlError | None:
    found = _EXPECTED.match(message)
    if found is None:
        if _clause(stop, stop.index) == "WITH":
            return stop.unexpected(stop.index, f"it is written {WITH_SHAPE}")
        return None
    word = found[1]
    if word == "(":
        hint = f"it is written {WITH_SHAPE}" if _clause(stop, stop.index) == "WITH" else None
        return stop.error(stop.index, "an opening parenthesis was expected here", hint)
    word = "WHEN" if word == "END" and stop.word(stop.index) == "THEN" else word
    early = "the statement ends too early: " if stop.token(stop.index) is None else ""
    return stop.error(stop.index, f"{early}{word} was expected here", f"it is written {EXPECTED_SHAPES[word]}")


def _parentheses(stop: Stop) -> FjordSqlError | None:
    opened: list[int] = []
    for index in range(stop.index):
        if stop.word(index) == "(":
            opened.append(index)
        elif stop.word(index) == ")" and opened:
            opened.pop()
    word = stop.word(stop.index)
    if word == ")" and not opened:
        return stop.unexpected(stop.index, why=": no parenthesis is open")
    nothing = stop.word(stop.index - 3) in _SET_OPERATIONS | {"ALL", "DISTINCT"}
    behind = nothing and (stop.word(stop.index - 2), stop.word(stop.index - 1)) == ("(", ")")
    if behind or (word == ")" and opened[-1] == stop.index - 1):
        last = stop.index - behind
        empty = stop.tokens[last - 1].start, stop.tokens[last].end + 1
        reason = "there is nothing in these parentheses"
        return FjordSqlError(reason, text=stop.text, start=empty[0], end=empty[1])
    if opened and stop.token(stop.index) is None:
        return stop.error(opened[-1], "this parenthesis is never closed")
    if opened and word in _CLAUSES:
        return stop.unexpected(stop.index, why=": parentheses do not match, a closing one is missing")
    return None


def _side_by_side(stop: Stop) -> str | None:
    """Return what may be missing between two operands."""
    token = stop.token(stop.index)
    around = (stop.token(stop.index - 1), stop.token(stop.index + 1))
    if stop.word(stop.index) == "," and all(each and each.token_type == TokenType.NUMBER for each in around):
        return "a number has a dot before its decimals"
    if token is None or token.token_type not in _BEGIN_OPERANDS or not _ends_operand(stop, stop.index - 1):
        return None
    clause = _clause(stop, stop.index)
    if clause in _CONDITIONS:
        number = stop.tokens[stop.index - 1].token_type == TokenType.NUMBER and token.token_type in NAMES
        return f"conditions are connected by AND and OR{', and numbers have no unit here' if number else ''}"
    return "a comma may be missing before it" if clause in ("(", "SELECT", "GROUP BY") else None
