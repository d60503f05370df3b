"""The outcome tables that the paper's figures are made from: simulated workloads, and recorded answers of real models.

All have the paper's stop rule: a request ends at its first right answer ("oracle" stop). That is what the paper's cascade
profiling assumes; the application's own check is the subject of `signals.py` and `compare_policies.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bench_estimator import SPIDER_USD_PER_1000, exam_table, spider_table
from reproduce_parts.mathqa_table import mathqa_table
from science.exact_outcomes import exact_table
from science.recorded_table import RecordedTable

from vinelm.backends import create_backends, simulated_catalog
from vinelm.requests.workflow import Request
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.workflows.mathqa.workflow import bundled_requests
from vinelm.workflows.nl2sql import nl2sql, nl2sql_2

NL2SQL_8, NL2SQL_2, MATHQA_4 = "NL2SQL-8", "NL2SQL-2", "MathQA-4"
SPIDER, EXAMS = "Spider, 8 systems", "exams, 9 models"
STANDS_FOR = {NL2SQL_8: NL2SQL_8, NL2SQL_2: NL2SQL_2, MATHQA_4: MATHQA_4, SPIDER: NL2SQL_8, EXAMS: MATHQA_4}
"""The paper's workload that a table is compared with."""


@dataclass(frozen=True)
class Case:
    """One workload with its complete table.

    Args:
        name: a key of :data:`STANDS_FOR`.
        about: one sentence: what is real in it.
        table: of all requests over all paths, under the oracle stop.
        has_real_seconds: the table's seconds are simulated or recorded; False where there are none.
    """

    name: str
    about: str
    table: RecordedTable
    has_seconds: bool = True


def simulated_cases(requests: int) -> list[Case]:
    """The paper's three workloads with its models' names: questions, tools and checks real, models simulated.

    Args:
        requests: at most so many of each workload, evenly spread over the bundled ones.
    """
    found = []
    for name, make, preset in ((NL2SQL_8, nl2sql, "paper"), (NL2SQL_2, nl2sql_2, "paper-2")):
        workflow, catalog = make(), simulated_catalog(preset)
        backends = create_backends(catalog, workflow=workflow)
        chosen = spread(workflow.requests, requests)
        table = exact_table(workflow, catalog, backends, chosen, only_reached="oracle").with_stop("oracle")
        found.append(Case(name, "bundled questions, SQL really executed; models simulated", table))
    table = mathqa_table(simulated_catalog("paper-math"), spread(bundled_requests(), requests))
    found.append(Case(MATHQA_4, "generated problems, calculations really checked; models simulated", table))
    return found


def recorded_cases(data: Path) -> list[Case]:
    """Recorded answers of real models. There is no recorded NL2SQL-2: a system that is asked again repeats its answer, so that
    two systems have no plan that one model per stage lacks.
    """
    spider = spider_table(data, SPIDER_USD_PER_1000)
    return [
        Case(SPIDER, "answers real, prices assumed, no seconds; a repair is another system's first answer", spider, False),
        Case(EXAMS, "answers, retries, dollars and seconds real; two turns", one_stage(exam_table(data))),
    ]


def one_stage(table: RecordedTable) -> RecordedTable:
    """The same outcomes with one stage that is repeated, as in MathQA: a workflow-level plan has one model for all turns."""
    depth = int(table.trie.depth.max())
    template = Template((Loop((Stage("solve"),), times=depth),), "oracle").bind(table.trie.models)
    trie = Trie.from_template(template)
    order = [0, *(table.trie.node(trie.prefix(node)) for node in range(1, len(trie)))]
    columns = {name: getattr(table, name)[:, order] for name in ("success", "stopped", "cost_usd", "latency_s")}
    return replace(table, template=template, trie=trie, **columns)


def spread(requests: tuple[Request, ...], count: int) -> list[Request]:
    """So many of the requests, at even distances."""
    if count >= len(requests):
        return list(requests)
    return [requests[int(i * len(requests) / count)] for i in range(count)]
