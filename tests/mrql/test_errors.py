"""What is wrong with a program is said in one sentence with its place; whatever the text, nothing else is raised."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from deltafold.algebra.errors import QueryError
from deltafold.api import Mrql
from tests.mrql.examples import ALL, ARGUMENTS
from tests.mrql.schemas import SCHEMAS

TOKEN = re.compile(r"\"[^\"]*\"|'[^']*'|\w+|\s+|\.\.\.|.", re.DOTALL)


def translated(text: str) -> str:
    return Mrql(text, args=ARGUMENTS).program(list(SCHEMAS), SCHEMAS.get).sql


WRONG = [
    ("select x\nfrm P;", "2:1: unexpected `frm`"),
    ("select x from x in P", None),
    ("select 'x from x in P;", "1:8: a string has no end. Close it by ', or remove this '"),
    ('x = "abc;\nx;', '1:5: a string has no end. Close it by "'),
    ("[xml|<a>{{'b}}</a>|];", "1:11: a string has no end"),
    ("select x from x in P where (x.X = 1;", "1:36: unexpected `;`"),
    ("select x from x in Nowhere;", "1:20: Nowhere is not defined. Define it, or declare it as a source"),
    ("select x.Q from x in P;", "1:8: there is no field Q in <X: int, Y: int>"),
    ("sum(P);", "1:1: sum: expected a bag of numbers, found one of <X: int, Y: int>"),
    ("sum(select e.name from e in E);", "1:1: sum: expected a bag of numbers, found one of string"),
    ("select x + 'a' from x in [1];", "1:8: +: expected numbers, found string"),
    ("select e from e in E where e.name;", "1:28: condition: expected a bool, found string"),
    ("select x from x in 3;", "1:20: expected a collection, found int"),
    ("select (a, b, c) from (a, b, c) in P;", "1:23: pattern: expected a tuple of 3, found <X: int, Y: int>"),
    ("P union E;", "the sides of union have the types <X: int, Y: int> and <name: string, dno: int, salary: double>"),
    ("select if p.X = 1 then 1 else 'a' from p in P;", "the branches have the types int and string"),
    ("select sum(p.X, 1) from p in P;", "1:8: sum: expected 1 argument, found 2. Correct the call"),
    ("count();", "1:1: count: expected 1 argument, found 0"),
    ("select f(p) from p in P;", "1:8: f is not a function. Define it, or correct its name"),
    ("function f(x: int): int { f(x) }; f(1);", "f calls itself: a query is unfolded before it runs"),
    ("function f(x: int): int { x }; f('a', 2);", "f: expected 1 argument, found 2. Correct the call"),
    ("function f(x: {int}): int { max(x) }; f(3);", "expected {int}, found int"),
    ("select sqrt(e.name) from e in E;", "sqrt: expected a number, found string"),
    (
        "select u from e in E group by u: parse_json(e.name).a;",
        "a key of group by cannot be JSON, which has no equality. Write string(…) of it",
    ),
    ("select count(parse_json(e.name).a) from e in E;", "found variant. Select the elements of its array"),
    (
        "select toInt(e.name) from e in E group by e.dno;",
        "toInt: expected a scalar, found {string}. It is a collection",
    ),
    (
        "function f(x: int): int { x }; select f(e.dno) from e in E group by e.name;",
        "expected int, found {int}. It is a",
    ),
    (
        "function f(x: int): int { x }; select f(e.name) from e in E;",
        "1:41: expected int, found string. Cast it with `as int`, or correct the type",
    ),
    ("function f(x: int): int { x }; select f(e.salary) from e in E;", "1:41: expected int, found double"),
    ("function f(x: <a: int>): int { x.a }; f(<a: 'b'>);", "1:41: expected int, found string"),
    ("function f(x: {int}): int { count(x) }; f(select p.X from p in P);", "1:29: expected int, found long"),
    ("function f(x: {int}): long { sum(x) }; f(select e.name from e in E);", "1:42: expected int, found string"),
    ("function f(x: int): string { x }; f(1);", "1:30: expected string, found int"),
    ("function f(x: double): long { count(P) + 1 }; function g(x: short): float { 1.5 }; f(g(3));", None),
    ("data t = A: int | B: int; A('3');", "1:29: expected int, found string"),
    ("aggregation p(\\(x: int, y: int): string. 'a', 1): int; p([1]);", "1:15: expected int, found string"),
    ("aggregation p(\\(x: int, y: int): int. x, '1'): int; p([1]);", "1:42: expected int, found string"),
    ("aggregation p(\\(x: int, y: int): int. x, 1): int; p(['1']);", "1:51: expected int, found string"),
    ("aggregation p(\\(x: int, y: int): int. x, 1): long; p([1]);", "1:15: expected int, found long"),
    ("aggregation p(\\(x: long, y: long): long. x, 1): long; p([1]);", None),
    ("select toString(x) from x in [1];", "toString is not a function. Use string(x)"),
    (
        "select < a: p.X, b: p.X > 0 > from p in P;",
        "1:27: unexpected `0`. Correct it, or what precedes it. A `>` before it closes a record: write a comparison",
    ),
    ("random(3);", "random numbers differ from run to run"),
    (
        "select p.X from p in P limit 3;",
        "1:24: unexpected `limit`: it needs `order by` before it. Write `select … from … order by … limit n`",
    ),
    ("P LIMIT 3;", "1:3: unexpected `LIMIT`: it needs `order by` before it"),
    ("select p.X from p in P order by p.X limit p.Y;", "a limit is a constant"),
    ("select p.X from p in P order by p.X limit 1.7;", "1:43: limit: expected an integer, found double. Write one"),
    ("select p.X from p in P order by p.X limit 'a';", "1:43: limit: expected an integer, found 'a'"),
    (
        "select (select x from x in n.tags order by x limit 1.7) from n in N;",
        "limit: expected an integer, found double",
    ),
    ("select (select x from x in n.tags order by x limit n.id) from n in N;", None),
    ("select p.X from p in P order by p.X limit args[0];", None),
    ("select p.X from p in P order by p.X limit 4 / 2;", None),
    ("repeat x = {1} step x;", "a repeat without limit may never end. Add `limit n`"),
    (
        "repeat x = {1} step select (y, y > 3) from y in x limit 3;",
        "a repeat cannot end by a flag that its step computes",
    ),
    ("repeat x = {1} step select 'a' from y in x limit 3;", "starts with rows int, and its step gives string"),
    ("repeat x = P step x limit count(P);", "the limit of a repeat is a constant"),
    ("select (p.X, repeat x = {p.X} step x limit 2) from p in P;", "a repeat cannot read a row of a select around it"),
    ("select x.* from x in P;", "child elements and all attributes at once are not supported"),
    ("select x.@a from x in P;", "attribute: expected XML, found <X: int, Y: int>"),
    ("select x.a from x in {'<a/>' as XML};", "child elements are not supported"),
    (
        "select [xml|<a>{{x}}</a>|] from x in P;",
        "hole of a template: expected scalars and elements, found <X: int, Y: int>",
    ),
    ("[xml|<a>{{1 +}}</a>|];", "1:14: the text ends within a query"),
    ("[xml|<a>{{1; 2}}</a>|];", "a hole of a template has one expression"),
    ("[xml| <a>{{1}}</b> |];", "1:15: template: expected </a>, found </b>. Correct one of the two tags"),
    ("[xml|<a>\n<b/>|];", "1:6: template: <a> has no end. Close it by </a>, or write <a/>"),
    ("[xml|{{1}}</a>|];", "1:11: template: </a> closes no tag. Remove it, or write <a> before it"),
    ("[xml|<a>{{1}} < 2</a>|];", "1:15: template: `<` does not begin a tag"),
    ("[xml|<a b='<'/>|];", "1:6: template: `<` does not begin a tag"),
    ('select [xml|<a b="{{x.X}}/>"><!-- <c> --><b c=\'/\'/><b c = "/a>"/>{{x.Y}}</a>|] from x in P;', None),
    ("select [xml|<{{x.X}}>1</{{x.X}}>|] from x in P;", None),
    ("select [xml|<{{x.X}}>1</{{x.Y}}>|] from x in P;", "expected </{{x.X}}>, found </{{x.Y}}>"),
    ("[html|<a></a>|];", "there are no templates of html"),
    ("select x from [xml|<a/>|] in P;", "this pattern is not supported"),
    ("xpath(a/b);", "xpath is not supported yet"),
    ("source(xml, 'T', {'b'});", "source(xml, …): expected a path alone. Take the parts of its rows in the query"),
    ("source(avro, 'T');", "source: expected binary, line, json, xml, found avro. Land other files"),
    ("source(binary, 'nowhere.bin');", "nowhere.bin is not a declared source. Name its source under `paths`"),
    ("source(line, 'T.txt', type(int));", "source(line, …): expected a path, a separator and a type"),
    ("import f from 'C';", "import loads Java code, which a view does not run. Write a function or a macro, or give a"),
    ("import math;", "1:1: import loads Java code"),
    ("1; import java.util.List;", "1:4: import loads Java code"),
    ("import x.*;", "1:1: import loads Java code"),
    ("import 'C';", "1:1: import loads Java code"),
    ("parser p = 'C';", "parser loads Java code"),
    ("debug P;", "debug is not supported"),
    ("trace(3);", "trace writes to a log while a query runs"),
    ("data t = A: {t};", "there is no query in the program"),
    ("data t = A: {t} | B: int; B(3);", "t contains itself, which no column can"),
    ("data d = A: int | A: string; 1;", "1:19: data d: it has A twice. Rename one of the constructors"),
    ("x = P;\nx = 3; x;", "2:1: x is defined twice: first at query.mrql:1. Rename one of the two"),
    ("x = 1; macro x(y) { y }; x;", "1:8: x is defined twice"),
    ("function f(x: int): int { x }; aggregation f(max, 0): int; 1;", "1:32: f is defined twice"),
    ("data a = A: int; data b = A: string; 1;", "1:18: A is defined twice"),
    ("type a = int; data a = A: int; 1;", "1:15: a is defined twice"),
    ("x = P; x = P; data a = a: int; x;", None),
    ("case 3 { 1: 'a' };", "the last branch has to match all other values"),
    (
        "data t = A: int | B: int; case A(3) { A(1): 1 | B(b): b };",
        "1:49: the last branch has to match all other values",
    ),
    ("data t = A: int | B: int; case A(3) { A(1): 1 | A(a): a | B(b): b };", None),
    ("data t = A: int | B: int; case A(3) { A(a): 1 | B(1): 2 };", "the last branch has to match all other values"),
    ("select x#2 from x in {(1, 'a')};", "part #2: (int, string) has no such part. Use #0 to #1"),
    ("select (k, n#2) from n in P group by k: n#0;", "part #2: <X: int, Y: int> has no such part. Use #0 to #1"),
    ("(select < a: p.X > from p in P)#0;", "part #0: <a: int> has no such part. Use a field by its name: .a"),
    ("{[(1, 'a')]}#2;", "part #2: (int, string) has no such part. Use #0 to #1"),
    ("[1]#0;", "part #0: [int] has no such part. Take a part of a tuple"),
    ("select (k, (select p.X from p in P)#0) from n in P group by k: n#0;", "part #0: int has no such part"),
    ("repeat v = P step select < X: y, Y: x > from (x, y) in v limit 2;", "expected a tuple of 2, found <X: int, Y:"),
    ("select x#0 from x in {<a: 1>};", "part #0: <a: int> has no such part. Use a field by its name: .a"),
    ("data t = A: int | B: int; case A(3) { C(x): x | *: 0 };", "C is not a constructor of t. Use A or B"),
    ("args[7];", "args[7]: there is no such argument: 2 are passed"),
    (
        "include 'nowhere.mrql'; 1;",
        f"1:1: nowhere.mrql does not exist: there is no file {Path('nowhere.mrql').resolve()}. Correct its path",
    ),
    ("include '.'; 1;", "1:1: . cannot be read as UTF-8 text"),
    ("<a: 1, a: 2>;", "the record has a twice"),
    ("99999999999999999999;", "the number does not fit into a long"),
    ("x = 1;", "there is no query in the program"),
    ("", "there is no query in the program"),
    ("-" * 5000 + "1;", "nested too deeply"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_errors_have_their_place(text: str, sentence: str | None) -> None:
    if sentence is None:
        assert translated(text)
        return
    with pytest.raises(QueryError) as caught:
        translated(text)
    first, line, caret = str(caught.value).split("\n")
    assert re.match(r"query\.mrql:\d+:\d+: ", first) and sentence in first, first
    assert caret.strip() == "^" and line.startswith("    ")


def test_the_caret_is_below_the_place() -> None:
    with pytest.raises(QueryError) as caught:
        translated("select p.X,\n       p.Nope\nfrom p in P;")
    first, line, caret = str(caught.value).split("\n")
    assert first.startswith("query.mrql:1:11: ")
    assert line.index(",") == caret.index("^")


def broken(chance: random.Random) -> str:
    """An example with a few tokens removed, doubled, exchanged, or taken from another one."""
    tokens = TOKEN.findall(chance.choice(list(ALL.values())))
    others = TOKEN.findall(chance.choice(list(ALL.values())))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(tokens))
        match chance.randint(0, 4):
            case 0:
                tokens[at] = ""
            case 1:
                tokens.insert(at, chance.choice(tokens))
            case 2:
                tokens[at] = chance.choice(others)
            case 3:
                tokens[at] = chance.choice("()[]{}<>;:,.#+-*/=\\|\"'\x00é$")
            case _:
                other = chance.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def check_broken(seeds: range) -> int:
    right = 0
    for seed in seeds:
        text = broken(random.Random(seed))
        try:
            right += bool(translated(text))
        except QueryError as error:
            assert re.match(r"query\.mrql:\d+:\d+: .*[.?]\n", str(error)), f"seed {seed}: {text}\n{error}"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text}\n{type(error).__name__}: {error}") from error
    return right


def test_broken_texts_give_errors_with_a_place() -> None:
    assert 0 < check_broken(range(1500)) < 1500


@pytest.mark.night
@pytest.mark.timeout(7200)
def test_many_broken_texts() -> None:
    check_broken(range(1500, 100_000))
