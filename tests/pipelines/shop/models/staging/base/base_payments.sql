{{ config(materialized='ephemeral') }}

select id as payment_id, order_id, lower(method) as method, {{ amount('cents') }} as amount
from {{ source('raw', 'payments') }}
where status = 'success'
