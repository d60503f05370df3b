"""A web shop: customers, products in a tree of categories, suppliers, orders and reviews."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE category (
    category_id INTEGER PRIMARY KEY, category_name TEXT NOT NULL, parent_category_id INTEGER REFERENCES category (category_id));
CREATE TABLE supplier (
    supplier_id INTEGER PRIMARY KEY, supplier_name TEXT NOT NULL, country TEXT NOT NULL, contact_email TEXT);
CREATE TABLE product (
    product_id INTEGER PRIMARY KEY, product_name TEXT NOT NULL, category_id INTEGER NOT NULL REFERENCES category (category_id),
    supplier_id INTEGER NOT NULL REFERENCES supplier (supplier_id), list_price REAL NOT NULL, unit_cost REAL NOT NULL,
    stock_quantity INTEGER NOT NULL, discontinued_on DATE);
CREATE TABLE customer (
    customer_id INTEGER PRIMARY KEY, customer_name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
    registered_on DATE NOT NULL, referred_by INTEGER REFERENCES customer (customer_id), newsletter INTEGER NOT NULL);
CREATE TABLE sales_order (
    order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (customer_id), ordered_on DATE NOT NULL,
    shipped_on DATE, delivered_on DATE, payment_method TEXT NOT NULL, shipping_fee REAL NOT NULL, coupon_code TEXT);
CREATE TABLE order_line (
    order_id INTEGER NOT NULL REFERENCES sales_order (order_id), line_number INTEGER NOT NULL,
    product_id INTEGER NOT NULL REFERENCES product (product_id), quantity INTEGER NOT NULL, unit_price REAL NOT NULL,
    PRIMARY KEY (order_id, line_number));
CREATE TABLE review (
    review_id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (product_id),
    customer_id INTEGER NOT NULL REFERENCES customer (customer_id), stars INTEGER NOT NULL, reviewed_on DATE NOT NULL,
    comment TEXT);
"""

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


COUNTRY = ("Portugal", "Spain", "France", "Germany", "Austria", "Italy")
CATEGORY = ("Kitchen", "Lighting", "Furniture", "Tools", "Cycling", "Running", "Camping")
PARENT = ("Home", "Garden", "Sports")

ASKS = (
    ask(
        ["How many customers are registered in {country}?", "What is the number of customers from {country}?"],
        "SELECT COUNT(*) FROM customer WHERE country = '{country}'",
        country=COUNTRY,
    ),
    ask(
        [
            "How many customers does each country have? List country and number, only where there are at least {n}.",
            "Which countries have {n} or more customers, and how many exactly?",
        ],
        "SELECT country, COUNT(*) FROM customer GROUP BY country HAVING COUNT(*) >= {n}",
        n=("20", "30", "40"),
    ),
    ask(
        [
            "Which products are priced above {price}? Give name and list price, dearest first.",
            "List name and list price of products whose list price exceeds {price}, in descending order of price.",
        ],
        "SELECT product_name, list_price FROM product WHERE list_price > {price} ORDER BY list_price DESC",
        price=("250", "300", "200"),
    ),
    ask(
        "Which products are out of stock and not discontinued? Give their names.",
        "SELECT product_name FROM product WHERE stock_quantity = 0 AND discontinued_on IS NULL",
    ),
    ask(
        ["Name the subcategories of {parent}.", "Which categories lie directly under the category {parent}?"],
        """SELECT c.category_name FROM category AS c JOIN category AS p ON p.category_id = c.parent_category_id
           WHERE p.category_name = '{parent}'""",
        parent=PARENT,
    ),
    ask(
        ["How many products are in the subcategories of {parent}?", "Count the products whose category lies under {parent}."],
        """SELECT COUNT(*) FROM product WHERE category_id IN (SELECT c.category_id FROM category AS c JOIN category AS p
           ON p.category_id = c.parent_category_id WHERE p.category_name = '{parent}')""",
        parent=PARENT,
    ),
    ask(
        [
            "What is the average list price of {category} products?",
            "How much does a product in the category {category} cost on average, by list price?",
        ],
        """SELECT AVG(p.list_price) FROM product AS p JOIN category AS c ON c.category_id = p.category_id
           WHERE c.category_name = '{category}'""",
        category=CATEGORY,
    ),
    ask(
        ["Which product has the highest margin, that is list price minus unit cost? Give name and margin."],
        "SELECT product_name, list_price - unit_cost AS margin FROM product ORDER BY margin DESC LIMIT 1",
    ),
    ask(
        [
            "What was the total merchandise revenue (quantity times unit price) in {month}, by order date?",
            "Sum quantity times unit price over the order lines of orders placed in {month}.",
        ],
        """SELECT SUM(l.quantity * l.unit_price) FROM order_line AS l JOIN sales_order AS o ON o.order_id = l.order_id
           WHERE strftime('%Y-%m', o.ordered_on) = '{month}'""",
        month=("January 2022|2022-01", "June 2022|2022-06", "April 2023|2023-04", "October 2023|2023-10"),
    ),
    ask(
        [
            (
                "What are the {k} best-selling products by revenue, quantity times unit price? Give name and revenue, best "
                "seller first."
            ),
            "List the {k} products with the greatest sum of quantity times unit price, with that sum, from high to low.",
        ],
        """SELECT p.product_name, SUM(l.quantity * l.unit_price) AS revenue FROM product AS p JOIN order_line AS l ON
           l.product_id = p.product_id
           GROUP BY p.product_id, p.product_name ORDER BY revenue DESC LIMIT {k}""",
        k=("three|3", "four|4", "five|5", "six|6", "two|2"),
    ),
    ask(
        "How many products have never been ordered?",
        "SELECT COUNT(*) FROM product WHERE product_id NOT IN (SELECT product_id FROM order_line)",
    ),
    ask(
        "Which suppliers deliver no product at all? Give their names.",
        """SELECT s.supplier_name FROM supplier AS s WHERE NOT EXISTS
           (SELECT 1 FROM product AS p WHERE p.supplier_id = s.supplier_id)""",
    ),
    ask(
        [
            "How many orders were placed with payment method {method} and a coupon?",
            "Count the orders paid by {method} in which a coupon code was used.",
        ],
        "SELECT COUNT(*) FROM sales_order WHERE payment_method = '{method}' AND coupon_code IS NOT NULL",
        method=("card", "paypal", "invoice"),
    ),
    ask(
        "For each coupon code, how many orders used it and how many different customers were that?",
        """SELECT coupon_code, COUNT(*), COUNT(DISTINCT customer_id) FROM sales_order WHERE coupon_code IS NOT NULL
           GROUP BY coupon_code""",
    ),
    ask(
        [
            "Which customers placed at least {n} orders? Give name and number of orders.",
            "List customers with {n} or more orders, together with that number.",
        ],
        """SELECT c.customer_name, COUNT(o.order_id) FROM customer AS c JOIN sales_order AS o ON o.customer_id = c.customer_id
           GROUP BY c.customer_id, c.customer_name HAVING COUNT(o.order_id) >= {n}""",
        n=("12", "15", "18"),
    ),
    ask(
        [
            "Which customers from {country} have never placed an order? Give their names.",
            "Name the customers in {country} without a single order.",
        ],
        """SELECT c.customer_name FROM customer AS c LEFT JOIN sales_order AS o ON o.customer_id = c.customer_id
           WHERE c.country = '{country}' AND o.order_id IS NULL""",
        country=COUNTRY,
    ),
    ask(
        "How many customers were referred by another customer who lives in the same city?",
        """SELECT COUNT(*) FROM customer AS c JOIN customer AS r ON r.customer_id = c.referred_by WHERE c.city = r.city""",
    ),
    ask(
        [
            "Which customers referred {n} or more others? Give the name and how many.",
            "List the referrers of at least {n} customers, with the number referred.",
        ],
        """SELECT r.customer_name, COUNT(*) FROM customer AS c JOIN customer AS r ON r.customer_id = c.referred_by
           GROUP BY r.customer_id, r.customer_name HAVING COUNT(*) >= {n}""",
        n=("three|3", "two|2", "four|4"),
    ),
    ask(
        [
            "On average, how many days passed from order to delivery for orders delivered in {year}?",
            "Give the mean number of days between ordering and delivery, over orders delivered in {year}.",
        ],
        """SELECT AVG(julianday(delivered_on) - julianday(ordered_on)) FROM sales_order
           WHERE strftime('%Y', delivered_on) = '{year}'""",
        year=("2022", "2023"),
    ),
    ask(
        "How many orders were shipped on the very day they were placed?",
        "SELECT COUNT(*) FROM sales_order WHERE shipped_on = ordered_on",
    ),
    ask(
        [
            "Which products have an average rating of at least {stars} stars from at least {n} reviews? Give name and average.",
            "List name and mean stars of products with {n} or more reviews whose mean is {stars} or higher.",
        ],
        """SELECT p.product_name, AVG(r.stars) FROM product AS p JOIN review AS r ON r.product_id = p.product_id
           GROUP BY p.product_id, p.product_name HAVING COUNT(*) >= {n} AND AVG(r.stars) >= {stars}""",
        stars=("4", "4.2"),
        n=("5", "7", "10"),
    ),
    ask(
        "How many reviews are there for each number of stars, from five stars down to one?",
        "SELECT stars, COUNT(*) FROM review GROUP BY stars ORDER BY stars DESC",
    ),
    ask(
        "How many reviews were written by customers who never ordered the product they reviewed?",
        """SELECT COUNT(*) FROM review AS r WHERE NOT EXISTS (SELECT 1 FROM sales_order AS o JOIN order_line AS l
           ON l.order_id = o.order_id WHERE o.customer_id = r.customer_id AND l.product_id = r.product_id)""",
    ),
    ask(
        [
            "List the cities in which customers bought {category} products in {month}, each once.",
            "In which different cities do customers live who ordered {category} products in {month}?",
        ],
        """SELECT DISTINCT c.city FROM customer AS c JOIN sales_order AS o ON o.customer_id = c.customer_id JOIN order_line AS l
           ON l.order_id = o.order_id JOIN product AS p ON p.product_id = l.product_id JOIN category AS g
           ON g.category_id = p.category_id WHERE g.category_name = '{category}'
           AND o.ordered_on LIKE '{month}-%'""",
        category=CATEGORY,
        month=("March 2022|2022-03", "September 2022|2022-09", "May 2023|2023-05"),
    ),
    ask(
        "What is the average value of an order, taking quantity times unit price over its lines and leaving shipping out?",
        """SELECT AVG(value) FROM (SELECT SUM(quantity * unit_price) AS value FROM order_line GROUP BY order_id) AS
           per_order""",
    ),
    ask(
        [
            "Which {k} orders had the largest value, as quantity times unit price plus the shipping fee? "
            "Give order id and value, largest first."
        ],
        """SELECT o.order_id, SUM(l.quantity * l.unit_price) + o.shipping_fee AS value FROM sales_order AS o JOIN order_line
           AS l
           ON l.order_id = o.order_id GROUP BY o.order_id, o.shipping_fee ORDER BY value DESC LIMIT {k}""",
        times=1,
        k=("five|5", "four|4", "eight|8"),
    ),
    ask(
        "For each supplier country, what is the total stock value at unit cost?",
        """SELECT s.country, SUM(p.stock_quantity * p.unit_cost) FROM supplier AS s JOIN product AS p
           ON p.supplier_id = s.supplier_id GROUP BY s.country""",
    ),
    ask(
        ["Which countries are home to customers but not to any supplier?"],
        "SELECT DISTINCT country FROM customer WHERE country NOT IN (SELECT country FROM supplier)",
    ),
    ask(
        "Compare newsletter readers with the others: for newsletter 1 and 0, give the number of orders per customer on "
        "average, "
        "counting customers without orders.",
        """SELECT c.newsletter, COUNT(o.order_id) * 1.0 / COUNT(DISTINCT c.customer_id) FROM customer AS c
           LEFT JOIN sales_order AS o ON o.customer_id = c.customer_id GROUP BY c.newsletter""",
    ),
    ask(
        [
            (
                "Which products were sold at a unit price below their list price more than {n} times, counting order "
                "lines? Give names."
            ),
            "Name the products with over {n} order lines whose unit price is less than the list price.",
        ],
        """SELECT p.product_name FROM product AS p JOIN order_line AS l ON l.product_id = p.product_id
           WHERE l.unit_price < p.list_price GROUP BY p.product_id, p.product_name HAVING COUNT(*) > {n}""",
        n=("8", "10", "12"),
    ),
)

WEBSHOP = Domain("webshop", SCHEMA, fill, ASKS)
