from .events import CanaryEvent as CanaryEvent
from .events import DecisionEvent as DecisionEvent
from .events import DriftEvent as DriftEvent
from .events import Listener as Listener
from .events import Observer as Observer
from .events import ObserverGroup as ObserverGroup
from .opentelemetry import OpenTelemetry as OpenTelemetry
from .prometheus import Prometheus as Prometheus
