{{ config(materialized='incremental', unique_key='day', incremental_strategy='merge') }}
select day, count(*) as orders, sum(amount) as revenue
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where day >= (select max(day) from {{ this }})
{% endif %}
group by day
