#!/bin/sh
# Create a database with an owner for each part; PostgreSQL's image runs this once. Passwords are read by psql itself.
set -eu
for name in airflow mlflow vault answers refresh journal label_studio; do
  psql --quiet --set=ON_ERROR_STOP=1 --set="name=$name" --username="$POSTGRES_USER" --dbname=postgres <<SQL
\set password \`cat ${SECRETS:-/run/secrets}/postgres_$name\`
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
