"""The source columns that an answer's columns are computed from."""

from deltafold.algebra.lineage import column_lineage
from deltafold.algebra.plan import (
    Aggregate,
    Call,
    Column,
    Filter,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Opaque,
    Project,
    Reference,
    SourceRead,
    Sql,
    Union,
    Unsupported,
)

ORDER, SHOP, PRICE, CITY, KEY = (Column(name, "int") for name in ("order#1", "shop#2", "price#3", "city#4", "shop#5"))
NET, TOTAL, ROWS = (Column(name, "int") for name in ("net#6", "total#7", "rows#8"))
ORDERS = SourceRead("orders", (("id", ORDER), ("shop", SHOP), ("price", PRICE)))
SHOPS = SourceRead("shops", (("shop", KEY), ("city", CITY)))


def test_an_expression_has_its_columns_and_conditions_have_none() -> None:
    joined = Join(
        left=Filter(ORDERS, Sql("id > 3", "boolean", frozenset({ORDER.name}))),
        right=SHOPS,
        kind="inner",
        condition=Sql("shop = shop", "boolean", frozenset({SHOP.name, KEY.name})),
    )
    computed = Opaque("price * length(city)", "int", frozenset({PRICE.name, CITY.name}))
    net = Project(joined, (Item(CITY, Reference(CITY)), Item(NET, computed)))
    total = Call(column=TOTAL, function="sum", arguments=(NET,), text="")
    rows = Call(column=ROWS, function="count", arguments=(), text="")
    answer = Aggregate(net, (CITY,), (total, rows))
    assert column_lineage(answer, ((CITY, "town"), (TOTAL, "total"), (ROWS, "n"))) == {
        "town": {("shops", "city")},
        "total": {("orders", "price"), ("shops", "city")},
        "n": set(),
    }


def test_a_union_matches_by_position_and_a_window_is_not_inspected() -> None:
    union = Union((Project(ORDERS, (Item(SHOP, Reference(SHOP)),)), Project(SHOPS, (Item(KEY, Reference(KEY)),))))
    ranked = GroupwiseOp(child=union, kind="window", keys=(SHOP,), columns=(SHOP, TOTAL), text="rank")
    lineage = column_lineage(ranked, ((SHOP, "shop"), (TOTAL, "rank")))
    assert lineage == {"shop": {("orders", "shop"), ("shops", "shop")}, "rank": None}
    other = Unsupported(kind="Sample", text="", reason="operator", subject="", children=(ORDERS,), columns=(SHOP,))
    assert column_lineage(other, ((SHOP, "shop"),)) == {"shop": None}


def test_a_loop_has_what_its_steps_add() -> None:
    """The second column of each step is the first of the level before, which has origins of its own."""
    start, end = Column("start#1", "int"), Column("end#2", "int")
    read = Given("walk", (Column("start#3", "int"), Column("end#4", "int")))
    step = Project(read, (Item(start, Reference(read.columns[1])), Item(end, Reference(read.columns[0]))))
    init = Project(ORDERS, (Item(start, Reference(ORDER)), Item(end, Reference(SHOP))))
    walk = Loop(name="walk", kind="set", init=init, step=step, columns=(start, end), limit=9)
    both = {("orders", "id"), ("orders", "shop")}
    assert column_lineage(walk, ((start, "a"), (end, "b"))) == {"a": both, "b": both}
