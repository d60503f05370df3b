CREATE TABLE department (
    department_id INTEGER PRIMARY KEY, department_name TEXT NOT NULL, building TEXT NOT NULL, founded_year INTEGER);
CREATE TABLE professor (
    professor_id INTEGER PRIMARY KEY, professor_name TEXT NOT NULL,
    department_id INTEGER NOT NULL REFERENCES department (department_id), academic_rank TEXT NOT NULL, hired_on DATE NOT NULL,
    office TEXT);
CREATE TABLE student (
    student_id INTEGER PRIMARY KEY, student_name TEXT NOT NULL, major_department_id INTEGER REFERENCES department
    (department_id),
    entry_year INTEGER NOT NULL, birth_date DATE NOT NULL, home_city TEXT, scholarship_eur INTEGER);
CREATE TABLE course (
    course_id INTEGER PRIMARY KEY, title TEXT NOT NULL, department_id INTEGER NOT NULL REFERENCES department (department_id),
    credits INTEGER NOT NULL, level INTEGER NOT NULL);
CREATE TABLE prerequisite (
    course_id INTEGER NOT NULL REFERENCES course (course_id), required_course_id INTEGER NOT NULL REFERENCES course (course_id),
    PRIMARY KEY (course_id, required_course_id));
CREATE TABLE section (
    section_id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES course (course_id),
    professor_id INTEGER NOT NULL REFERENCES professor (professor_id), year INTEGER NOT NULL, term TEXT NOT NULL,
    room TEXT, capacity INTEGER NOT NULL);
CREATE TABLE enrollment (
    section_id INTEGER NOT NULL REFERENCES section (section_id), student_id INTEGER NOT NULL REFERENCES student (student_id),
    enrolled_on DATE NOT NULL, grade INTEGER, PRIMARY KEY (section_id, student_id));
