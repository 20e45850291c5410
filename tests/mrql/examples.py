"""Programs of MRQL that are run three ways: reference, batch, view. Their tables are in TABLES."""

from __future__ import annotations

from typing import Any

TABLES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "S": ("x int, y double", [(1, 2.0), (1, 3.5), (2, -1.25), (3, 0.0), (None, 4.0), (2, None)]),
    "P": ("X int, Y int", [(1, 10), (2, 10), (3, 20), (3, 20), (4, 30)]),
    "Q": ("Y int, Z int", [(10, 1), (20, 2), (20, 3), (40, 4), (None, 5)]),
    "E": (
        "name string, dno int, salary double",
        [("ann", 1, 10.0), ("bob", 1, 20.0), ("cid", 2, 15.0), ("dee", 3, 15.0), ("eve", 2, None), ("fay", None, 5.0)],
    ),
    "D": ("dno int, city string", [(1, "Oslo"), (2, "Rome"), (4, "Bern")]),
    "N": (
        "id int, tags array<string>, parts array<struct<n: int, v: double>>",
        [(1, ["a", "b"], [(1, 1.5), (2, 2.5)]), (2, [], []), (3, ["b", "b"], [(2, 4.0), (2, 0.5), (3, None)])],
    ),
    "M": ("i int, j int, v double", [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0), (1, 1, -1.0)]),
    "W": ("i int, j int, v double", [(0, 0, 0.5), (1, 0, 2.0), (1, 1, 1.0)]),
    "T": ("line string", [("1, tea , 3.5",), ("2,coffee,2.25",), ("3,tea,1.0",)]),
}

# the programs of the papers: averages by key, join and average, nested queries, matrix product
PAPERS = {
    "averages by key": "select (x, avg(y)) from (x, y) in S group by x;",
    "join and average": "select (k, avg(q.Z)) from p in P, q in Q where p.Y = q.Y group by k: p.X;",
    "join and average, without a pattern": "select (p.X, avg(q.Z)) from p in P, q in Q where p.Y = q.Y group by p.X;",
    "nested sum": "select x from x in E where x.salary > sum(select d.Z from d in Q where d.Z = x.dno);",
    "matrix product": """
        select (i, j, sum(x * y)) from (i, k, x) in M, (k, j, y) in W group by (i, j);""",
    "transposed and scaled": "select (j, i, 2.0 * v) from (i, j, v) in M;",
}

# which compile to one state each, without a collected bag
ONE_STATE = ("averages by key", "join and average", "join and average, without a pattern", "matrix product")

FLAT = {
    "all columns": "select x from x in P;",
    "of a source by its file": 'O = source(binary, "tmp/P.bin"); select <a: o.X, b: o.Y + 1> from o in O where o.X > 1;',
    "of a stream": 'select o.X from o in stream(binary, "P.bin");',
    "lines": """
        L = source(line, "T.txt", ",", type(<id: int, what: string, price: double>));
        select (w, sum(l.price)) from l in L group by w: l.what;""",
    "lines without a column": 'L = source(line, "T.txt", ",", type((int, any, double))); select (b, a) from (a, b) in L;',
    "a constant in a pattern": "select y from (3, y) in P;",
    "a repeated variable": "select (x, z) from (x, y) in P, (y, z) in Q;",
    "anything": "select x from (x, *) in P;",
    "a record pattern": "select (a, b) from <X: a, Y: b> in P where a < 3;",
    "bindings": "select (z, x) from x in P, z = x.X * 2 + x.Y, z2 = z where z2 > 14;",
    "distinct": "select distinct p.Y from p in P;",
    "distinct records": "select distinct <a: p.X, b: p.Y> from p in P;",
    "union": "select p.Y from p in P union select q.Y from q in Q;",
    "union by plus": "(select p.Y from p in P) + (select q.Z from q in Q);",
    "intersect": "(select p.Y from p in P) intersect (select q.Y from q in Q);",
    "except": "(select p.Y from p in P) except {10, 20, 99};",
    "order with limit": "select (p.X, p.Y) from p in P order by p.Y desc, p.X limit 3;",
    "inverse order": "select p.X from p in P order by inv(p.X) limit 2;",
    "distinct with order and limit": "select distinct p.Y from p in P order by p.Y desc limit 2;",
    "not, and, or": "select s from s in S where not (s.x = 1) and (s.y > 0.0 or s.x = 2);",
    "arithmetic": "select (p.X / 2, p.Y mod 7, -p.X, p.X * 1.5, p.X / 2.0) from p in P;",
    "IEEE division": "select (p.X / 0.0, (0.0 - p.X) / 0.0, (p.X - 1.0) / (p.X - 1), 5.0 mod 0.0) from p in P;",
    "if": "select if p.X > 2 then p.Y else 0 - p.Y from p in P;",
    "if over NULL": "select if s.x = 1 then 'one' else 'other' from s in S;",
    "let": "select let (a, b) = (p.X, p.Y) in a * b from p in P;",
    "strings": """
        select (toUpperCase(e.name), substring(e.name, 1, 3), length(e.name), contains(e.name, 'e'), e.name + '!')
        from e in E where startsWith(e.name, 'e') or e.name = "bob";""",
    "functions of numbers": "select (sqrt(q.Z * 1.0), pow(2.0, q.Z), abs(0 - q.Z), min(q.Z, 3), round(q.Z / 2.0)) from q in Q;",
    "casts": "select (p.X as double, (p.X as string) + 'x', toInt('7') + p.X) from p in P;",
    "tuples": "select ((p.X, (p.Y, 1))#1)#0 from p in P;",
    "of a one-row answer": "sum(select p.X from p in P) + count(Q);",
    "of a tuple": "(count(P), max(select p.X from p in P), avg(select q.Z from q in Q where q.Z > 9));",
    "of nothing": """
        (sum(select p.X from p in P where p.X > 99), count({}), some p in P: p.X > 99, all p in P: p.X < 99,
         min(select p.X from p in P where p.X > 99));""",
    "a range": "select (i, i * i) from i in 1 ... 5;",
    "a list as a relation": "select x + p.X from x in [1, 2], p in P;",
    "if between relations": "if count(P) > 3 then (select p.X from p in P) else (select q.Z from q in Q);",
    "arguments": "select p.X from p in P where p.X > toInt(args[0]) order by p.X limit toInt(args[1]);",
}

GROUPS = {
    "sum and count": "select <k: k, s: sum(e.salary), n: count(e)> from e in E group by k: e.dno;",
    "having": "select (k, max(e.salary)) from e in E group by k: e.dno having count(e) > 1;",
    "two keys": "select (x, y, count(p)) from p in P group by (x, y): (p.X mod 2, p.Y);",
    "a record of keys": "select (k.a, count(p)) from p in P group by k: <a: p.Y, b: 1>;",
    "a condition within": "select (k, sum(select e.salary from e in es where e.name <> 'bob')) from es in E, e = es group by k: es.dno;",
    "a select of a group": "select (k, sum(select x.salary * 2.0 from x in e where x.salary > 10.0)) from e in E group by k: e.dno;",
    "exists, some, all": """
        select (k, some x in e: x.salary > 15.0, all x in e: x.salary > 5.0, exists(select x from x in e where x.salary > 15.0))
        from e in E group by k: e.dno;""",
    "a collected group": "select (k, e) from e in E group by k: e.dno;",
    "a collected field": "select (k, e.name) from e in E group by k: e.dno;",
    "the first of a group": "select (k, (select x.name from x in e order by x.salary desc)[0]) from e in E group by k: e.dno;",
    "a group within a group": """
        select (k, select (c, count(x)) from x in e group by c: x.salary > 12.0) from e in E group by k: e.dno;""",
    "an aggregate within a condition": "select (k, count(select x from x in e where x.salary >= avg(e.salary))) from e in E group by k: e.dno;",
    "arrays of a group": "select (k, sum(n.parts.v), count(n.tags), max(n.parts.n)) from n in N group by k: n.id > 1;",
    "a select of arrays of a group": "select (k, sum(select p.n from m in n, p in m.parts where p.n > 1)) from n in N group by k: n.id > 1;",
    "the partition": "select (k, count(partition)) from p in P, q in Q where p.Y = q.Y group by k: p.X;",
    "above a group": "select (n, count(k)) from (k, n) in (select (k, count(p)) from p in P group by k: p.X) group by n;",
    "a joined group": """
        select (d.city, n) from d in D, (k, n) in (select (k, count(e)) from e in E group by k: e.dno) where d.dno = k;""",
    "distinct of a group": "select distinct count(p) from p in P group by p.X;",
    "order of a group": "select (k, sum(p.Y)) from p in P group by k: p.X order by sum(p.Y) desc limit 2;",
    "by all": "select (count(p), k) from p in P group by k: true;",
}

NESTED = {
    "a nested bag": "select (d.city, select e.name from e in E where e.dno = d.dno) from d in D;",
    "a nested list": "select (d.city, select e.name from e in E where e.dno = d.dno order by e.salary desc) from d in D;",
    "a nested aggregate": "select (d.city, count(select e from e in E where e.dno = d.dno), max(select e.salary from e in E where e.dno = d.dno)) from d in D;",
    "without equality": "select (p.X, count(select q from q in Q where q.Z < p.X)) from p in P;",
    "exists": "select d.city from d in D where exists(select e from e in E where e.dno = d.dno);",
    "not exists": "select d.city from d in D where not exists(select e from e in E where e.dno = d.dno);",
    "some": "select d.city from d in D where some e in E: e.dno = d.dno and e.salary > 12.0;",
    "all": "select d.city from d in D where all e in E: e.dno <> d.dno or e.salary > 12.0;",
    "exists in the head": "select (d.city, exists(select e from e in E where e.dno = d.dno)) from d in D;",
    "member": "select p.X from p in P where member(p.Y, select q.Y from q in Q);",
    "the first": "select (d.city, (select e.name from e in E where e.dno >= d.dno order by e.salary, e.name)[0]) from d in D where d.dno < 3;",
    "a lookup": "select (p.X, (select (d.dno, d.city) from d in D)[p.X]) from p in P;",
    "two deep": """
        select (d.city, select (e.name, count(select f from f in E where f.salary > e.salary)) from e in E where e.dno = d.dno)
        from d in D;""",
    "two deep, to the outermost": """
        select (d.city, select (e.name, count(select f from f in E where f.dno = d.dno)) from e in E where e.dno = d.dno)
        from d in D;""",
    "a select in a from": "select (a, b) from (a, b) in (select (p.X, q.Z) from p in P, q in Q where p.Y = q.Y) where a < 3;",
    "a dependent select in a from": "select (d.city, n) from d in D, n in (select e.name from e in E where e.dno = d.dno);",
    "a dependent group in a from": """
        select (d.city, s, n) from d in D, (s, n) in (select (s, count(e)) from e in E where e.dno >= d.dno group by s: e.salary);""",
    "a group of nested": "select (n, count(d)) from d in D group by n: count(select e from e in E where e.dno = d.dno);",
    "the closest": """
        function distance(x: double, y: double): double { sqrt(pow(x - y, 2.0)) };
        select (k.dno, count(s)) from s in S where s.y > 0.0
        group by k: (select d from d in D order by distance(d.dno, s.y))[0];""",
    "a maximum": "let m = max(select e.salary from e in E) in select e.name from e in E where e.salary = m;",
}

ARRAYS = {
    "explode": "select (n.id, t) from n in N, t in n.tags;",
    "explode and join": "select (n.id, q.Z) from n in N, p in n.parts, q in Q where q.Z = p.n;",
    "select within": "select (n.id, select p.n * 2 from p in n.parts where p.v > 1.0) from n in N;",
    "two within": "select (n.id, select (t, p.n) from t in n.tags, p in n.parts) from n in N;",
    "order within": "select (n.id, select p.n from p in n.parts order by p.v desc limit 2) from n in N;",
    "distinct within": "select (n.id, select distinct t from t in n.tags) from n in N;",
    "group within": "select (n.id, select (k, sum(p.v), count(p)) from p in n.parts group by k: p.n having count(p) > 0) from n in N;",
    "aggregates": "select (n.id, count(n.tags), sum(n.parts.v), avg(n.parts.n), min(n.parts.v), max(n.tags)) from n in N;",
    "quantifiers": "select (n.id, some t in n.tags: t = 'b', all p in n.parts: p.v > 1.0, exists n.tags, member('a', n.tags)) from n in N;",
    "set operations": "select (n.id, n.tags + ['z'], {1, 2, 2} intersect {2, 2, 3}, {1, 1, 2} except {1}) from n in N;",
    "index and part": "select (n.tags[0], n.tags[0:1], n.parts[0].n) from n in N where count(n.tags) > 0;",
    "a list pattern": "select (a, b) from n in N, [a, b] = n.tags;",
    "with a relation": "select (n.id, p.n, exists(select q from q in Q where q.Z = p.n)) from n in N, p in n.parts;",
    "elem": "select elem(n.tags) from n in N where count(n.tags) = 1;",
    "a list": "select (i, j) from i in 1 .. 3, j in 1 .. i;",
}

DEFINED = {
    "a name for a query": "V = select (p.X, p.Y) from p in P; select (a, count(b)) from (a, b) in V, (a, c) in V group by a;",
    "a function": "function f(x: int, y: double): double { x * y }; select f(p.X, p.Y) from p in P;",
    "a function of a record": "function n(r: <X: int, Y: int>): int { r.X + r.Y }; select n(p) from p in P;",
    "a function of a bag": "function top(b: {int}): int { max(b) }; top(select p.X from p in P);",
    "a macro": "macro twice(e) { e + e }; select twice(twice(p.X)) from p in P;",
    "a macro of names": "macro above(c, n) { select x from x in c where x > n }; select (n.id, above(n.parts.v, 1.0)) from n in N;",
    "an aggregation": r"aggregation product(\(x: double, y: double): double. x * y, 1.0): double; select (k, product(e.salary)) from e in E where e.salary > 0.0 group by k: e.dno;",
    "an aggregation with a unit": r"function one(x: int): int { 1 }; function plus(x: int, y: int): int { x + y }; aggregation size(plus, 0, one): int; size(select p.X from p in P);",
    "a type": "type point = <X: int, Y: int>; function sum2(p: point): int { p.X + p.Y }; select sum2(p) from p in P;",
    "a data type": """
        data shape = Circle: double | Box: (double, double);
        select case s { Circle(r): r * r * 3.0 | Box(a, b): a * b } from p in P, s = if p.X > 2 then Circle(p.X) else Box(p.X, p.Y);""",
    "case of constants": "select case p.X { 1: 'one' | 2: 'two' | *: 'many' } from p in P;",
    "dump": 'dump "out.txt" from select p.X from p in P;',
    "store": "store V := select p from p in P where p.X > 1; incr select v.Y from v in V;",
}

ALL = {**PAPERS, **FLAT, **GROUPS, **NESTED, **ARRAYS, **DEFINED}
ARGUMENTS = ("1", "2")
