{{ config(materialized='table') }}

select
    order_id,
    {% for method in var('payment_methods') %}
    sum(case when method = '{{ method }}' then amount else 0 end) as {{ method }}_amount,
    {% endfor %}
    sum(amount) as paid,
    sum(refunded) as refunded
from {{ ref('stg_payments') }}
group by order_id
