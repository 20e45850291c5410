{{ config(materialized='incremental', incremental_strategy='append') }}

select p.*, o.ordered_on, o.store_id
from {{ ref('stg_payments') }} p
join {{ ref('stg_orders') }} o using (order_id)
{{ only_new('payment_id') }}
