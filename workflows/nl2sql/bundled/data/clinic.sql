CREATE TABLE department (
    department_id INTEGER PRIMARY KEY, department_name TEXT NOT NULL, floor INTEGER NOT NULL, annual_budget_eur INTEGER);
CREATE TABLE doctor (
    doctor_id INTEGER PRIMARY KEY, doctor_name TEXT NOT NULL,
    department_id INTEGER NOT NULL REFERENCES department (department_id), hired_on DATE NOT NULL,
    salary_eur INTEGER NOT NULL, supervisor_id INTEGER REFERENCES doctor (doctor_id));
CREATE TABLE patient (
    patient_id INTEGER PRIMARY KEY, patient_name TEXT NOT NULL, sex TEXT NOT NULL, birth_date DATE NOT NULL, city TEXT,
    insurer TEXT, family_doctor_id INTEGER REFERENCES doctor (doctor_id));
CREATE TABLE appointment (
    appointment_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patient (patient_id),
    doctor_id INTEGER NOT NULL REFERENCES doctor (doctor_id), booked_on DATE NOT NULL, held_on DATE NOT NULL,
    status TEXT NOT NULL, duration_minutes INTEGER, fee_eur REAL);
CREATE TABLE medication (
    medication_id INTEGER PRIMARY KEY, medication_name TEXT NOT NULL, drug_class TEXT NOT NULL, unit_price_eur REAL NOT NULL);
CREATE TABLE prescription (
    prescription_id INTEGER PRIMARY KEY, appointment_id INTEGER NOT NULL REFERENCES appointment (appointment_id),
    medication_id INTEGER NOT NULL REFERENCES medication (medication_id), days INTEGER NOT NULL, units_per_day INTEGER NOT
    NULL);
CREATE TABLE lab_result (
    result_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patient (patient_id), test_name TEXT NOT NULL,
    taken_on DATE NOT NULL, value REAL, is_abnormal INTEGER NOT NULL);
