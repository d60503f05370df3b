"""All bundled databases."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.airline import AIRLINE
from vinelm.workflows.nl2sql.bundled.bikeshare import BIKESHARE
from vinelm.workflows.nl2sql.bundled.clinic import CLINIC
from vinelm.workflows.nl2sql.bundled.company import COMPANY
from vinelm.workflows.nl2sql.bundled.domain import Domain
from vinelm.workflows.nl2sql.bundled.league import LEAGUE
from vinelm.workflows.nl2sql.bundled.library import LIBRARY
from vinelm.workflows.nl2sql.bundled.museum import MUSEUM
from vinelm.workflows.nl2sql.bundled.music import MUSIC
from vinelm.workflows.nl2sql.bundled.university import UNIVERSITY
from vinelm.workflows.nl2sql.bundled.webshop import WEBSHOP

DOMAINS: tuple[Domain, ...] = (AIRLINE, LIBRARY, CLINIC, UNIVERSITY, WEBSHOP, LEAGUE, MUSIC, BIKESHARE, MUSEUM, COMPANY)
