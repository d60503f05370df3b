from vinelm.reports.document import Chart, Row, Section, Series, Table, readable


def chart(x, y):
    series = tuple(Series(name="s", role="vinelm", x=[a], y=[b]) for a, b in zip(x, y, strict=True))
    return Chart(name="c", title="A plane", caption="", x_title="", y_title="", series=series)


def table(*rows):
    return Table(
        title="t",
        columns=("policy", "right", "p50", "worth it"),
        rows=tuple(Row(cells=one) for one in rows),
        text_columns=(0, 3),
    )


def test_a_plane_with_one_dot_is_a_sentence():
    found = readable(Section(title="S", parts=(chart([1.0, 1.0], [0.5, 0.5]),)))
    assert found.parts == ()
    assert found.findings == ("There is no chart “A plane”: all of its points fall on one place.",)
    found = readable(Section(title="S", findings=("x",), parts=(chart([], []),)))
    assert found.findings[1].startswith("There is no chart “A plane”: the rows tell no point")


def test_a_chart_that_says_something_stays():
    section = Section(title="S", parts=(chart([1.0, 2.0], [0.5, 0.5]),))
    assert readable(section) == section


def test_a_column_without_a_figure_is_left_out_and_named():
    given = table(("a", "not identified", "-", "no"), ("b", "not identified", "-", "yes"))
    (found,) = readable(Section(title="S", parts=(given,))).parts
    assert found.columns == ("policy", "worth it")
    assert [row.cells for row in found.rows] == [("a", "no"), ("b", "yes")]
    assert found.text_columns == (0, 1)
    assert found.note == "The column “right” is left out: too few rows were bought for it."


def test_a_column_with_one_figure_stays():
    given = table(("a", "not identified", "1.0 s", "no"), ("b", "50 %", "too few", "yes"))
    assert readable(Section(title="S", parts=(given,))).parts == (given,)
