select
    s.order_id, s.carrier,
    {{ dbt.datediff('o.ordered_on', 's.shipped_on', 'day') }} as days_to_ship,
    {{ dbt.datediff('s.shipped_on', 's.delivered_on', 'day') }} as days_in_transit
from {{ ref('stg_shipments') }} s
join {{ ref('stg_orders') }} o on s.order_id = o.order_id
