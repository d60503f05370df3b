from .static_plans import StaticPlans as StaticPlans
