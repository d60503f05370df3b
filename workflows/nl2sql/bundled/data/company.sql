CREATE TABLE office (
    office_id INTEGER PRIMARY KEY, city TEXT NOT NULL, country TEXT NOT NULL, desk_count INTEGER NOT NULL, opened_on DATE NOT
    NULL);
CREATE TABLE team (
    team_id INTEGER PRIMARY KEY, team_name TEXT NOT NULL, office_id INTEGER REFERENCES office (office_id),
    cost_centre TEXT NOT NULL);
CREATE TABLE employee (
    employee_id INTEGER PRIMARY KEY, employee_name TEXT NOT NULL, team_id INTEGER NOT NULL REFERENCES team (team_id),
    manager_id INTEGER REFERENCES employee (employee_id), job_title TEXT NOT NULL, hired_on DATE NOT NULL, left_on DATE,
    monthly_salary_eur INTEGER NOT NULL, home_city TEXT);
CREATE TABLE client (
    client_id INTEGER PRIMARY KEY, client_name TEXT NOT NULL, industry TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE project (
    project_id INTEGER PRIMARY KEY, project_name TEXT NOT NULL, client_id INTEGER REFERENCES client (client_id),
    lead_id INTEGER NOT NULL REFERENCES employee (employee_id), start_date DATE NOT NULL, end_date DATE,
    budget_eur INTEGER NOT NULL, status TEXT NOT NULL);
CREATE TABLE timesheet (
    entry_id INTEGER PRIMARY KEY, employee_id INTEGER NOT NULL REFERENCES employee (employee_id),
    project_id INTEGER NOT NULL REFERENCES project (project_id), work_date DATE NOT NULL, hours REAL NOT NULL,
    is_billable INTEGER NOT NULL, note TEXT);
CREATE TABLE pay_rise (
    employee_id INTEGER NOT NULL REFERENCES employee (employee_id), effective_on DATE NOT NULL, old_salary_eur INTEGER NOT NULL,
    new_salary_eur INTEGER NOT NULL, PRIMARY KEY (employee_id, effective_on));
CREATE TABLE skill (
    employee_id INTEGER NOT NULL REFERENCES employee (employee_id), skill_name TEXT NOT NULL, proficiency INTEGER NOT NULL,
    PRIMARY KEY (employee_id, skill_name));
