select order_id, region, open_amount from {{ ref('order_summary', v=2) }} where open_amount > 0
