{{ config(materialized='incremental', unique_key='order_id', on_schema_change='append_new_columns') }}

select
    o.order_id, o.customer_id, o.store_id, o.employee_id, o.status, o.ordered_on,
    t.subtotal, t.items, t.has_drink,
    cast(t.subtotal * s.tax_rate as decimal(16, 2)) as tax,
    cast(t.subtotal * (1 + s.tax_rate) as decimal(16, 2)) as total,
    coalesce(p.paid, 0) as paid
from {{ ref('stg_orders') }} o
left join {{ ref('int_order_totals') }} t on o.order_id = t.order_id
left join {{ ref('int_payments_by_order') }} p on o.order_id = p.order_id
left join {{ ref('stg_stores') }} s on o.store_id = s.store_id
{{ only_new('o.ordered_on') }}
