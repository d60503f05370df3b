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
