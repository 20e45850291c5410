select order_id, customer_id, total from {{ ref('fct_orders') }}
