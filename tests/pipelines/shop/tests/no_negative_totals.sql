select order_id, total from {{ ref('fct_orders') }} where total < 0
