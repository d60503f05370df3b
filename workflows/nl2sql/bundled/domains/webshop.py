"""A web shop: customers, products in a tree of categories, suppliers, orders and reviews."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

CATEGORIES = (
    ("Home", None),
    ("Garden", None),
    ("Sports", None),
    ("Kitchen", 1),
    ("Lighting", 1),
    ("Furniture", 1),
    ("Tools", 2),
    ("Plants", 2),
    ("Cycling", 3),
    ("Running", 3),
    ("Camping", 3),
)
SUPPLIERS = (
    "Nordhaus Verdea Cucinova Lumara Pedalix Trailforge Casaluz Bricolo Aldergrove Kastell Montivo Fjellsport Terrabel Oakline"
)
ADJECTIVES = "Compact Classic Light Sturdy Foldable Premium Eco Urban Alpine Rustic"
NOUNS = "Lamp Kettle Chair Trowel Tent Helmet Shoe Pan Shelf Lantern Backpack Planter Grill Bench Pump Bottle Table Hammock"


def fill(dice: Dice) -> Tables:
    """11 categories, 14 suppliers, 160 products, 360 customers, 1,300 orders, some 2,900 lines, 700 reviews."""
    categories = [(number, *row) for number, row in enumerate(CATEGORIES, start=1)]
    suppliers = [
        (number, name, dice.pick(CITIES)[1], dice.maybe(f"sales@{name.lower()}.example", 0.2))
        for number, name in enumerate(SUPPLIERS.split(), start=1)
    ]
    names = titles(dice, ADJECTIVES, NOUNS, 160)
    products = [_product(dice, number, name) for number, name in enumerate(names, start=1)]
    customers = [_customer(dice, number, name) for number, name in enumerate(people(dice, 360), start=1)]
    orders = [_order(dice, number) for number in range(1, 1301)]
    lines = [line for order in orders for line in _lines(dice, order, products)]
    bought = [(orders[line[0] - 1], line[2]) for line in lines]
    reviews = [_review(dice, number, bought) for number in range(1, 701)]
    tables = ("category", "supplier", "product", "customer", "sales_order", "order_line", "review")
    return dict(zip(tables, (categories, suppliers, products, customers, orders, lines, reviews), strict=True))


def _product(dice: Dice, number: int, name: str) -> Row:
    price = dice.cents(6, 390)
    cost = round(price * dice.between(35, 85) / 100, 2)
    gone = dice.day("2022-06-01", "2023-12-31") if dice.chance(0.12) else None
    stock = 0 if dice.chance(0.08) else dice.heavy(1, 400)
    return (number, name, dice.between(4, 11), dice.skewed(range(1, 14)), price, cost, stock, gone)


def _customer(dice: Dice, number: int, name: str) -> Row:
    city, country = dice.skewed(CITIES)
    sponsor = dice.between(1, number - 1) if number > 20 and dice.chance(0.25) else None
    return (number, name, city, country, dice.day("2019-01-01", "2023-06-30"), sponsor, int(dice.chance(0.45)))


def _order(dice: Dice, number: int) -> Row:
    ordered = dice.day("2022-01-01", "2023-12-20")
    shipped = dice.maybe(later(ordered, dice.heavy(0, 14)), 0.05)
    delivered = dice.maybe(later(shipped, dice.between(1, 9)), 0.06) if shipped else None
    method = dice.skewed(("card", "paypal", "invoice", "voucher"))
    coupon = dice.skewed(("SPRING10", "WELCOME", "FREESHIP")) if dice.chance(0.2) else None
    return (number, dice.skewed(range(1, 331)), ordered, shipped, delivered, method, dice.pick((0.0, 3.9, 4.9, 7.5)), coupon)


def _lines(dice: Dice, order: Row, products: list[Row]) -> list[Row]:
    lines = []
    for number, product in enumerate((dice.skewed(products[:150]) for _ in range(dice.heavy(1, 6))), start=1):
        price = round(float(product[4]) * (0.9 if dice.chance(0.2) else 1), 2)
        lines.append((order[0], number, product[0], dice.heavy(1, 6), price))
    return lines


def _review(dice: Dice, number: int, bought: list[tuple[Row, int]]) -> Row:
    """Mostly of something that the customer ordered."""
    order, product = dice.pick(bought)
    customer, day = order[1], min("2023-12-31", later(order[2], dice.between(3, 60)))
    if dice.chance(0.15):
        customer = dice.between(1, 330)
    stars = dice.skewed((5, 4, 4, 3, 2, 1))
    comment = dice.maybe(dice.pick(("as described", "arrived late", "would buy again", "too small", "great value")), 0.4)
    return (number, product, customer, stars, day, comment)
