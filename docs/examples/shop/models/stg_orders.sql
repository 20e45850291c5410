{{ config(materialized='view') }}
select id as order_id, customer, cast(cents / 100 as decimal(10, 2)) as amount, day
from {{ source('raw', 'orders') }}
where status <> 'cancelled'
