"""All bundled databases."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain
from vinelm.workflows.nl2sql.bundled.domains.airline import AIRLINE
from vinelm.workflows.nl2sql.bundled.domains.bikeshare import BIKESHARE
from vinelm.workflows.nl2sql.bundled.domains.clinic import CLINIC
from vinelm.workflows.nl2sql.bundled.domains.company import COMPANY
from vinelm.workflows.nl2sql.bundled.domains.league import LEAGUE
from vinelm.workflows.nl2sql.bundled.domains.library import LIBRARY
from vinelm.workflows.nl2sql.bundled.domains.museum import MUSEUM
from vinelm.workflows.nl2sql.bundled.domains.music import MUSIC
from vinelm.workflows.nl2sql.bundled.domains.university import UNIVERSITY
from vinelm.workflows.nl2sql.bundled.domains.webshop import WEBSHOP

DOMAINS: tuple[Domain, ...] = (AIRLINE, LIBRARY, CLINIC, UNIVERSITY, WEBSHOP, LEAGUE, MUSIC, BIKESHARE, MUSEUM, COMPANY)
